#pragma once
// One step of the user's own code, kept inside a budget while it runs: the recorder sees each op
// before it runs, and the guide brings back what the op reads; after it, the guide gives up what
// the plan gives up.
//
//   user's op        conv  relu  pool ........ grad (reads relu's result through a saved tensor)
//   the guide                        drop relu ▲ conv, relu run again from *this* step's calls; the bytes go back under the tensor
//
// Two ways to decide what goes:
//   planned   the stream of ops matches a plan, node by node: drops and recomputations stand where the plan has them
//   online    no plan, or the stream has left it: when an allocation would pass the budget, an eviction policy picks
//
// Either way whatever an op reads is there when it runs, and what could not be made again is never
// dropped. In layers: remaker.hpp brings back, plan_follower.hpp carries a plan out, this header
// decides between the two ways.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <reprise/libtorch/guided/plan_follower.hpp>
#include <reprise/plan/eviction.hpp>
#include <reprise/plan/shares.hpp>

namespace reprise {

template <EvictionPolicy Policy>
class Guide final : public RecorderHooks, public MemoryGate, public PlanFollower {
 public:
  /// What to follow for a step that has come so far and goes on with this op; none for no plan.
  /// Asked at the first op, and again where a stream has left its plan.
  using Choose = std::function<std::shared_ptr<const PlannedStream>(const Recording& so_far,
                                                                    const Call& next, Bytes base)>;

  /// `limit` 0: none. Where it cannot be kept, an error is thrown, with what `advice` says, or the
  /// step goes on above it.
  Guide(Bytes limit, bool throws, SpillFile& file, Policy policy, Choose choose,
        std::function<std::string()> advice)
      : PlanFollower(this, file),
        limit_(limit),
        throws_(throws),
        policy_(std::move(policy)),
        choose_(std::move(choose)),
        advice_(std::move(advice)) {
    watches_sources_ = limit > Bytes{0};  // else nothing is ever dropped
    page_blocks().begin_step();
    recorder_.give_each_number_a_value();
    recorder_.heed_foreign_memory();
    recorder_.heed_other_threads();
    memory_gate() = this;
    PageBlocks::limit_here() = limit;
  }
  ~Guide() override { stop(); }
  Guide(const Guide&) = delete;
  Guide& operator=(const Guide&) = delete;

  [[nodiscard]] bool went_over() const { return went_over_; }
  /// What the step needed above what it started from, where that is more than the limit; else 0.
  [[nodiscard]] Bytes needed_above_base() const {
    return went_over_ ? raised_ - recorder_.base() : Bytes{0};
  }
  /// Asked when memory runs out for the first time: what an earlier step that began like this one
  /// needed above its base; 0 for nothing known.
  void ask_for_need(std::function<Bytes(const Recording& so_far)> needed_before) {
    needed_before_ = std::move(needed_before);
  }
  void set_limit(Bytes limit) {
    limit_ = PageBlocks::limit_here() = limit;
    watches_sources_ = limit > Bytes{0};
  }

  /// The host may read and write it as it likes: it is brought back and never touched again.
  void pin(const at::Tensor& tensor) {
    if (!tensor.defined() || !is_plain(tensor)) return;
    const std::lock_guard lock(recorder_.guard());
    // also of one that no op of the step has read yet
    static_cast<void>(recorder_.value_of(tensor));
    const StorageIndex s = recorder_.storages().find(tensor.storage().unsafeGetStorageImpl());
    if (s == no_storage) return;
    catch_up();
    bring_back(s);
    static_cast<void>(host_access(s));
    recorder_.unwatch(s);
  }

  /// Ends the step: everything alive is brought back, inside the limit. Throws where that does not
  /// fit.
  [[nodiscard]] Recording finish() {
    const std::lock_guard lock(recorder_.guard());
    catch_up();
    recorder_.add_releases();
    if (stream_ != nullptr) follow_to(NodeId{recorder_.calls_seen()}, true);
    counters_.followed = stream_ != nullptr;
    leave_plan("the step has ended");
    static const std::string end = "the end of the step";
    op_ = &end;
    for (StorageIndex s = 0; s < storages_.size(); ++s) {
      if (!recorder_.storages().alive(s)) continue;
      ++marks_[s].running;
      bring_back(s);
    }
    counters_.predicted = counters_.followed && !entered_ && !remade_;
    leave_thread();
    Recording recording = recorder_.finish();
    storages_.let_go();
    page_blocks().end_step();
    finished_ = true;
    return recording;
  }

  // ── around each op ─────────────────────────────────────────────────────────────────────────────

  MemoryGate* gate() override { return this; }
  void left() override { leave_thread(); }

  void ready(const Call& call, std::span<const StorageIndex> writes) override {
    ++clock_;
    // of this thread: one that has joined, or one that did not see the limit change
    PageBlocks::limit_here() = limit_;
    op_ = &call.facts->name;
    catch_up();
    undo_takeover();
    end_running();
    if (ask_) find_plan(call);
    for (const ArgumentSlot& read : call.reads)
      if (const StorageIndex s = recorder_.storage_of(read.value); s != no_storage) {
        begin_running(s);
        for (const StorageIndex other : recorder_.sharing_memory_with(s)) begin_running(other);
      }
    make_room_for_others();
    if (!call.facts->views_only) static_cast<void>(settle_pointer_writes(call));
    if (call.facts->random) note_generator();
    if (stream_ != nullptr) follow_stream(call);
    for (const ArgumentSlot& read : call.reads) {
      const StorageIndex s = recorder_.storage_of(read.value);
      if (s == no_storage) continue;
      if (!call.facts->views_only) bring_back_with_neighbours(s);
      if (may_linger(call)) linger(s);
    }
    for (StorageIndex s : writes) {
      end_version(s);
      storages_.unwatch_writes(s);
      for (const StorageIndex other : recorder_.sharing_memory_with(s)) {
        end_version(other);
        storages_.unwatch_writes(other);
      }
    }
    note_operands(call);
    begin_takeover(call);
  }

  void after(const c10::OperatorHandle& /*op*/, c10::ArrayRef<c10::IValue> results,
             NodeId node) override {
    const Call& call = recording().calls[node.index];
    catch_up();
    if (taking_over()) end_takeover(results[0].toTensor());
    note_call(call, node);
    if (stream_ != nullptr) {
      if (same_results(node)) finish_node(node);
      else leave_stream("an op made something else");
    }
    if (online_) touch_all(call);
    end_running();
    op_ = nullptr;
    if constexpr (DropsUnasked<Policy>) drop_unasked();
  }

  void failed(const Call& /*call*/, std::span<const StorageIndex> writes) override {
    undo_takeover();
    catch_up();
    leave_plan("an op threw");
    for (StorageIndex s : writes) spoil(s);
    end_running();
    op_ = nullptr;
  }

  bool host_access(StorageIndex s) override {
    if (running_again_) {  // a kernel of ours, not the host
      watch_again_.push_back(s);
      return true;
    }
    catch_up();
    if (storages_.where(s) == Where::moved_out || storages_.where(s) == Where::dropped)
      bring_back(s);
    if (storages_.edges_written(s)) {  // since before: what it was is wanted once more
      host_has_written(s);
      return true;
    }
    const ValueId newest = recorder_.newest_in(s);
    const NodeId maker = newest.valid() ? recording().values[newest.index].producer : NodeId{};
    const bool expected =
        stream_ != nullptr && maker.valid() && !stream_->recording->calls[maker.index].repeatable;
    if (!expected) leave_stream("the host took a pointer");
    // the end of the version forgets them
    const Readers readers = newest.valid() ? readers_[newest.index] : Readers{};
    if (newest.valid()) makeable_[newest.index] = pure_[newest.index] = false;
    end_version(s);
    if (maker.valid()) recorder_.forbid_again(maker);
    // what it read may be gone by the next time
    for (NodeId reader : readers) recorder_.forbid_again(reader);
    marks_[s].pinned = true;
    marks_[s].exposed = true;
    marks_[s].told = true;
    policy_.erase(s);
    storages_.unwatch_writes(s);
    return true;
  }

  void host_wrote(StorageIndex s) override {
    catch_up();
    const ValueId newest = recorder_.newest_in(s);
    if (newest.valid() && is_awaited(newest)) throw written_too_late(newest);
  }

  // ── memory ─────────────────────────────────────────────────────────────────────────────────────

  void before_allocation(Bytes bytes) override {
    if (limit_ <= Bytes{0} || cpu_memory().live() + bytes <= limit_) return;
    if (!evict_for(bytes)) {
      if (can_give_way()) throw GiveWay{};
      if (throws_) throw too_small(bytes);
      raise_limit(cpu_memory().live() + bytes);
    }
    went_over_ = went_over_ || cpu_memory().live() + bytes > limit_;
  }
  [[nodiscard]] Microseconds time_spent() const override {
    return storages_.transfers().time_out + storages_.transfers().time_in;
  }
  void after_release(Bytes bytes, std::uint64_t serial) override {
    if (serial > recorder_.start_serial()) return;
    const std::lock_guard lock(recorder_.guard());  // a thread that has joined may be in an op
    if (!freeing_ && recorder_.is_on()) recorder_.note_release(bytes);
  }

  // ── pointers that are used ─────────────────────────────────────────────────────────────────────

  void make_room(Bytes bytes) override { before_allocation(bytes); }
  void touched(StorageIndex s, bool writes) override {
    const GoingOn here(*this);
    catch_up();
    remade_ = true;  // what comes back now, and stays, is in no plan
    if (writes) return written_by_pointer(s);
    marks_[s].pinned = true;
    policy_.erase(s);
    bring_back(s);
    if (recorder_.is_persistent(s) && !marks_[s].exposed && !marks_[s].lingers)
      storages_.watch_writes(s);
  }
  void was_touched(StorageIndex s, bool writes) override {
    const ValueId newest = recorder_.newest_in(s);
    if (writes && newest.valid() && is_awaited(newest)) throw written_too_late(newest);
    if (writes) static_cast<void>(host_access(s));
    marks_[s].pinned = true;
    policy_.erase(s);
  }

  void exchanged(StorageIndex s) override {
    const GoingOn here(*this);
    written_by_pointer(s);
  }
  bool in_op() const override { return op_ != nullptr || running_again_; }

  bool died(StorageIndex s) override {
    policy_.erase(s);
    if (s >= marks_.size()) return false;
    if (recorder_.is_on() && (marks_[s].told || outlives_unread(s) || recorder_.is_persistent(s)))
      recorder_.note_release(s);
    const ValueId v = recorder_.newest_in(s);
    if (v.valid() && !pure(v)) tell_of_dependants(v);
    if (stream_ != nullptr && wanted_by_plan(s)) return true;
    return v.valid() && !makeable(v) && !forget_source(v);
  }

 private:
  // False where nothing more can go.
  [[nodiscard]] bool evict_for(Bytes bytes) {
    const std::lock_guard lock(recorder_.guard());
    leave_plan("memory ran out");
    ask_ = false;
    if (!std::exchange(ran_out_, true) && !throws_ && needed_before_)
      raise_limit(recorder_.base() + needed_before_(recording()));
    go_online();
    int repriced = 0;
    while (cpu_memory().live() + bytes > std::max(limit_, raised_)) {
      auto victim =
          policy_.pick(clock_, [this](std::uint32_t s) { return may_go(s) && !marks_[s].unread; });
      if (!victim) victim = policy_.pick(clock_, [this](std::uint32_t s) { return may_go(s); });
      if (!victim) return false;
      if (repriced < most_repriced && costs_more_now(*victim)) ++repriced;
      else evict(*victim);
    }
    return true;
  }

  // Threads that are not part of the step ask nobody: what they have taken since the last op is
  // made up for at the next one.
  void make_room_for_others() {
    if (limit_ > Bytes{0} && cpu_memory().live() > std::max(limit_, raised_))
      static_cast<void>(evict_for({}));
  }

  // ── planned or online ──────────────────────────────────────────────────────────────────────────

  void find_plan(const Call& call) {
    ask_ = false;
    auto found = choose_ ? choose_(recording(), call, recorder_.base()) : nullptr;
    if (!found) return;
    if (recorder_.calls_seen() == 0) return follow(std::move(found));
    entered_ = true;
    enter(std::move(found), NodeId{recorder_.calls_seen()});
  }

  void follow_stream(const Call& call) {
    const NodeId node{recorder_.calls_seen()};
    follow_to(node, false);
    if (stream_ != nullptr && same_call(node, call)) return;
    leave_stream("another op came");
    if (ask_) find_plan(call);
    if (stream_ != nullptr) follow_to(node, false);
  }

  // Another plan may begin like this.
  void leave_stream(const char* why) {
    if (stream_ == nullptr) return;
    leave_plan(why);
    ask_ = true;
  }

  // No op has read it, and it has lived on: for the host, perhaps, which reads it as it likes.
  [[nodiscard]] bool outlives_unread(StorageIndex s) const {
    if (!marks_[s].unread) return false;
    const ValueId v = recorder_.newest_in(s);
    const NodeId maker = v.valid() ? recording().values[v.index].producer : NodeId{};
    return maker.valid() && maker.index + 1 < recording().calls.size();
  }

  // A pointer is used, perhaps on a thread that has not joined: what has to be made for it asks
  // this gate, and nobody can be told that it does not fit.
  class GoingOn {
   public:
    explicit GoingOn(Guide& guide)
        : guide_(guide),
          gate_(std::exchange(memory_gate(), &guide)),
          limit_(std::exchange(PageBlocks::limit_here(), guide.limit_)),
          throws_(std::exchange(guide.throws_, false)) {}
    ~GoingOn() {
      memory_gate() = gate_;
      PageBlocks::limit_here() = limit_;
      guide_.throws_ = throws_;
    }
    GoingOn(const GoingOn&) = delete;
    GoingOn& operator=(const GoingOn&) = delete;

   private:
    Guide& guide_;
    MemoryGate* gate_;
    Bytes limit_;
    bool throws_;
  };

  // And whatever lies in the same memory, which a kernel reads through the other's pointer.
  void bring_back_with_neighbours(StorageIndex s) {
    bring_back(s);
    for (const StorageIndex other : recorder_.sharing_memory_with(s)) bring_back(other);
  }

  // What is dropped and was made from it comes back first, and nothing is made from it any more.
  void written_by_pointer(StorageIndex s) override {
    const bool again = std::exchange(running_again_, false);  // a pointer is used, whoever does it
    const struct Restored {
      bool& running_again;
      bool before;
      ~Restored() { running_again = before; }
    } restored{running_again_, again};
    static_cast<void>(host_access(s));
  }

  void begin_running(StorageIndex s) {
    ++marks_[s].running;
    running_.push_back(s);
  }
  void end_running() {
    for (StorageIndex s : running_) --marks_[s].running;
    running_.clear();
  }

  void stop() {
    const std::lock_guard lock(recorder_.guard());
    if (memory_gate() == this) leave_thread();
    limit_ = raised_ = {};
    leave_plan("the step has ended");
    for (StorageIndex s = 0; s < storages_.size(); ++s) {
      try {
        if (recorder_.is_on() && recorder_.storages().alive(s)) bring_back(s);
      } catch (const std::exception&) {  // reading it throws and says why
      }
    }
    recorder_.stop();
    storages_.let_go();
    if (!finished_) page_blocks().abandon_step();
  }

  static void leave_thread() {
    memory_gate() = nullptr;
    PageBlocks::limit_here() = {};
  }

  // ── without a plan ─────────────────────────────────────────────────────────────────────────────

  void go_online() {
    if (online_) return;
    online_ = true;
    catch_up();
    for (StorageIndex s = 0; s < storages_.size(); ++s) touch(s);
  }

  [[nodiscard]] bool may_go(StorageIndex s) const {
    if (marks_[s].running > 0 || marks_[s].pinned || (marks_[s].unread && marks_[s].factory))
      return false;
    const bool can_be_made = makeable(recorder_.newest_in(s));
    if (storages_.where(s) == Where::held) return can_be_made && !counters_.only_spills;
    if (storages_.where(s) != Where::resident) return false;
    return (can_be_made && !counters_.only_spills) || storages_.may_move_out(s);
  }

  void touch_all(const Call& call) {
    for (const ArgumentSlot& read : call.reads)
      if (const StorageIndex s = recorder_.storage_of(read.value); s != no_storage) touch(s);
    for (const ResultSlot& result : call.results)
      if (const StorageIndex s = recorder_.storage_of(result.value); s != no_storage) touch(s);
  }

  void came_back(StorageIndex s) override {
    if (online_) touch(s);
  }

  void touch(StorageIndex s) {
    const bool in_memory =
        storages_.where(s) == Where::resident || storages_.where(s) == Where::held;
    if (!in_memory || storages_.bytes(s) == Bytes{0} || marks_[s].pinned) return policy_.erase(s);
    marks_[s].used = clock_;
    price(s, cost_of(s));
  }
  void price(StorageIndex s, Microseconds cost) {
    marks_[s].cost = cost;
    policy_.touch(s, {storages_.bytes(s), cost, marks_[s].used});
  }

  // Much of what it would be made from may have gone since it was priced. Then it is priced anew,
  // and another one may be the better choice.
  [[nodiscard]] bool costs_more_now(StorageIndex s) {
    const Microseconds cost = cost_of(s);
    if (cost.count <= worth_repricing * marks_[s].cost.count) return false;
    price(s, cost);
    return true;
  }

  void evict(StorageIndex s, bool unasked = false) {
    policy_.erase(s);
    if (recorder_.find_host_writes(s)) return;  // it stays
    const ValueId newest = recorder_.newest_in(s);
    freeing_ = true;
    const struct Freed {  // also where the file is full
      bool& freeing;
      ~Freed() { freeing = false; }
    } freed{freeing_};
    const bool drops =
        makeable(newest) && (unasked || !counters_.only_spills || !storages_.may_move_out(s));
    if (drops) storages_.drop(s, detail::describe(recording(), newest));
    else if (!storages_.move_out(s, detail::describe(recording(), newest))) return;
    ++counters_.evicted;
  }

  void begin_spilling() override {
    leave_plan("recomputation has reached its bound");
    for (StorageIndex s = 0; s < storages_.size(); ++s) touch(s);
  }

  // The step holds this much in any case: to stay below it before and after would cost time and
  // save nothing.
  void raise_limit(Bytes needed) { raised_ = std::max(raised_, needed); }

  void drop_unasked() {
    if (stream_ != nullptr) return;
    for (StorageIndex s = 0; s < storages_.size(); ++s)
      if (may_go(s) && storages_.bytes(s) > Bytes{0} && policy_.drops_unasked(s)) evict(s, true);
  }

  // Everything that could go is gone by now: what is held is what cannot.
  [[nodiscard]] Error too_small(Bytes bytes) const {
    const Bytes needed = cpu_memory().live() + bytes;
    MemoryShares shares;
    for (StorageIndex s = 0; s < storages_.size(); ++s) {
      if (storages_.where(s) != Where::resident && storages_.where(s) != Where::held) continue;
      const ValueId v = recorder_.newest_in(s);
      shares.add(recording().values[v.index].role, storages_.bytes(s),
                 detail::describe(recording(), v));
    }
    shares.add(Role::other, cpu_memory().live() - shares.total(),
               "what no op of the step has touched");
    shares.add(Role::activation, bytes, "what is asked for now");
    return Error(Errc::budget_unreachable,
                 (op_ == nullptr ? std::string("an allocation outside of any op") : *op_) +
                     " needs " + format_bytes(needed) + " (" + std::to_string(needed.count) +
                     " bytes) at once: what it reads and makes, and what cannot be given up. The "
                     "budget is " +
                     format_bytes(limit_) + " (" + std::to_string(limit_.count) + " bytes).\n" +
                     shares.text() + (advice_ ? advice_() : std::string{}));
  }

  static constexpr int most_repriced = 16;  // for one allocation: a choice has a bound
  static constexpr double worth_repricing = 1.4;

  Bytes limit_;
  Bytes raised_{};  // what the step needs in any case, as far as that is known
  bool throws_;
  Policy policy_;
  Choose choose_;
  std::function<std::string()> advice_;
  std::function<Bytes(const Recording& so_far)> needed_before_;
  std::vector<StorageIndex> running_;  // what the running op needs
  std::uint64_t clock_ = 0;
  bool ask_ = true;  // for a plan, at the next op
  bool entered_ = false, online_ = false, went_over_ = false, finished_ = false;
};

}  // namespace reprise
