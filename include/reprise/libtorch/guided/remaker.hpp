#pragma once
// Brings back what a step has given up, by running again the calls recorded in this very step.
//
//   h = mm(x, w); r = relu(h); drop(r), drop(h)          r is wanted:  mm and relu run again, h goes as soon as relu has run,
//                                                        r's bytes go back under the user's tensor
//
// A value is makeable while every call that it takes may run again and everything that those calls
// start from is there or makeable itself; what is dropped is always makeable. When an op is about
// to change a source (a parameter in the optimizer's step, a buffer, an input), whatever is dropped
// and could only be made from it comes back first; from then on it can be moved out, but no longer
// dropped, and is itself a source of what was made from it.
//
// Recomputation has a bound. Each recomputation may evict what another one needs, and a step that
// computed the same values again and again would not end. Where memory has run out and the step has
// recomputed more ops than recompute_bound() allows, every evicted storage is recomputed once, in
// one pass, and from then on storages are spilled instead of evicted: a spilled storage costs its
// own bytes and nothing else.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include <reprise/libtorch/guided/content_checks.hpp>
#include <reprise/libtorch/guided/step_storages.hpp>
#include <reprise/libtorch/record/call_again.hpp>
#include <reprise/libtorch/record/graph_of.hpp>
#include <reprise/libtorch/record/recorder.hpp>
#include <reprise/libtorch/torch/generator_state.hpp>

namespace reprise {

/// What happened in one step.
struct GuideCounters {
  std::int64_t recomputed = 0;  ///< ops that were run again
  std::int64_t evicted = 0;     ///< storages that were given up online
  std::int64_t brought_back = 0;
  Microseconds extra_time{};  ///< spent on running again
  bool followed = false;      ///< a plan, to the last op
  /// and none before it did otherwise on the way: its peak is the one that was predicted
  bool predicted = false;
  /// all that the plan runs again was run again, whatever came afterwards
  bool carried_out = false;
  bool only_spills = false;  ///< recomputation had reached its bound
  std::size_t left_at = 0;   ///< the node at which the stream was another one
  std::string left_because{};
};

class Remaker : public StorageOwner {
 public:
  [[nodiscard]] Recorder& recorder() { return recorder_; }
  [[nodiscard]] const GuideCounters& counters() const { return counters_; }
  [[nodiscard]] const TransferStats& transfers() const { return storages_.transfers(); }
  /// So long a step is to be expected.
  void expect(std::size_t calls, std::size_t values, std::size_t storages) {
    recorder_.expect(calls, values, storages);
    reserve(values, storages);
  }
  /// What is dropped keeps its address: a pointer from any time reads what eager would.
  void keep_pointers() { storages_.keep_pointers(); }
  /// Compares everything that runs again with what it was; throws at the first difference.
  void verify() { checks_.emplace(); }
  /// How many ops a step of so many recorded calls recomputes, outside of any plan, before it
  /// spills instead.
  [[nodiscard]] static constexpr std::int64_t recompute_bound(std::size_t calls) {
    return 2 * static_cast<std::int64_t>(calls) + 128;
  }

 protected:
  /// What is known of a storage beside where its bytes are.
  struct Mark {
    bool pinned = false;   ///< never dropped or moved
    bool exposed = false;  ///< the host may write it at any time
    /// an op of another library has it, and may write it whenever it likes
    bool lingers = false;
    /// its death is part of the stream: it could not be made again while it lived
    bool told = false;
    /// no op has read its data: the host may be about to read it, or to fill it
    bool unread = false;
    bool factory = false;  ///< and it was made from nothing
    /// an op threw while it wrote: the contents are not those of any value
    bool spoiled = false;
    std::uint32_t running = 0;          ///< so many runs need it just now
    std::uint64_t used = 0;             ///< online: the op that used it last
    Microseconds cost{};                ///< online: to have it back, when that was last looked at
    std::uint32_t instance = no_index;  ///< planned: the plan's storage instance that lies in it
  };

  using Readers = c10::SmallVector<NodeId, 2>;

  Remaker(RecorderHooks* hooks, SpillFile& file)
      : recorder_(hooks), storages_(recorder_, *this, file) {}

  /// Whether somebody has the contents already, and has put them back.
  virtual bool supply(StorageIndex /*s*/) { return false; }
  /// Whether somebody has the value in memory that no storage of the step knows of, and keeps it
  /// for what can only be made from it.
  [[nodiscard]] virtual bool has_elsewhere(ValueId /*v*/) const { return false; }
  /// Something is about to be made again from what is in the step's storages.
  virtual void before_remaking() {}
  /// The contents are back.
  virtual void came_back(StorageIndex /*s*/) {}
  /// From here on nothing is evicted to be recomputed.
  virtual void begin_spilling() {}

  /// What a call needs while it runs must not be given up to make room for it.
  class Needed {
   public:
    explicit Needed(std::vector<Mark>& marks) : marks_(marks) {}
    ~Needed() {
      for (StorageIndex s : storages_) --marks_[s].running;
    }
    Needed(const Needed&) = delete;
    Needed& operator=(const Needed&) = delete;
    void add(StorageIndex s) {
      ++marks_[s].running;
      storages_.push_back(s);
    }

   private:
    std::vector<Mark>& marks_;
    std::vector<StorageIndex> storages_;
  };

  void reserve(std::size_t values, std::size_t storages) {
    storages_.reserve(storages);
    marks_.reserve(storages);
    makeable_.reserve(values);
    pure_.reserve(values);
    unfilled_.reserve(values);
    updated_at_.reserve(values);
    readers_.reserve(values);
  }

  void catch_up() {
    storages_.catch_up();
    for (auto s = static_cast<StorageIndex>(marks_.size()); s < storages_.size(); ++s) {
      marks_.emplace_back();
      marks_[s].pinned = marks_[s].told = recorder_.holds_number(s);  // not worth giving up
    }
    if (makeable_.size() == recording().values.size()) return;
    updated_at_.resize(recording().values.size());
    makeable_.resize(recording().values.size(), false);
    pure_.resize(recording().values.size(), false);
    unfilled_.resize(recording().values.size(), false);
    readers_.resize(recording().values.size());
  }

  [[nodiscard]] const Recording& recording() const { return recorder_.recording(); }
  [[nodiscard]] bool makeable(ValueId maker) const {
    return maker.index < makeable_.size() && makeable_[maker.index];
  }

  [[nodiscard]] bool pure(ValueId maker) const {
    return maker.index < pure_.size() && pure_[maker.index];
  }

  /// The random op draws from here: what runs again draws the same.
  void note_generator() {
    generator_before_.insert_or_assign(recorder_.calls_seen(), GeneratorState::now());
  }

  /// The call is about to run, and all that it reads is there.
  void note_operands(const Call& call) {
    if (!checks_ || call.facts->views_only) return;
    for (std::size_t k = 0; k < call.reads.size(); ++k) {
      const ValueId read = call.reads[k].value;
      const auto storage = memory_to_check(read);
      if (!storage || is_moved_statistic(call, call.reads[k])) continue;
      if (!marks_[recorder_.storage_of(read)].exposed)
        checks_->check_result(recording(), recorder_.maker_of(read),
                              *storage.unsafeGetStorageImpl(), false);
      checks_->note_operand(call, NodeId{recorder_.calls_seen()}, k, recording(),
                            *storage.unsafeGetStorageImpl());
    }
  }

  /// The call has run: what it made can be made again, or cannot.
  void note_call(const Call& call, NodeId node) {
    bool exposed = false;
    for (ValueId v : call.updates) updated_at_[v.index] = node;
    for (const ArgumentSlot& read : call.reads) {
      if (!read.value.valid()) continue;
      const StorageIndex s = recorder_.storage_of(read.value);
      if (s != no_storage) {
        exposed = exposed || marks_[s].exposed;
        if (!call.facts->views_only) marks_[s].unread = false;
        if (may_linger(call)) linger(s);
      }
      if (is_moved_statistic(call, read)) continue;
      watch_source(call, s);
      auto& list = readers_[recorder_.maker_of(read.value).index];
      if (list.empty() || list.back() != node) list.push_back(node);
    }
    if (exposed) recorder_.forbid_again(node);
    for (const ResultSlot& result : call.results) {
      note_result(call, result, exposed);
      if (!checks_ || recording().values[result.value.index].alias_of.valid()) continue;
      if (const auto storage = memory_to_check(result.value))
        checks_->note_result(recording(), result.value, *storage.unsafeGetStorageImpl());
    }
    if (call.kind == CallKind::op && call.facts->copies_lazily) note_lazy_copy(call);
  }

  // Operand and copy share one block, and LibTorch says whose it is: neither is evicted, and
  // nothing is recomputed from them.
  void note_lazy_copy(const Call& call) {
    std::vector<StorageIndex> sharing;
    for (const ArgumentSlot& read : call.reads) sharing.push_back(recorder_.storage_of(read.value));
    for (const ResultSlot& result : call.results)
      sharing.push_back(recorder_.storage_of(result.value));
    for (const StorageIndex s : sharing) {
      if (s == no_storage) continue;
      storages_.note_shared_block(s);
      written_by_pointer(s);
    }
  }

  /// An op of another library has it, perhaps beyond its end.
  void linger(StorageIndex s) {
    marks_[s].pinned = marks_[s].lingers = true;
    storages_.unwatch_writes(s);
  }

  // ── writes through pointers ────────────────────────────────────────────────────────────────────

  /// What the call has made may be dropped, and made again from this: whoever writes to it through
  /// a pointer is seen from now on. Within the step that is a matter of pointers from before it, of
  /// which LibTorch does not tell.
  void watch_source(const Call& call, StorageIndex s) {
    if (!watches_sources_ || call.facts->views_only || !call.repeatable || s >= storages_.size() ||
        !recorder_.is_persistent(s))
      return;
    if (!marks_[s].exposed && !marks_[s].lingers) storages_.watch_writes(s);
  }

  /// Before a call runs, or runs again: whether the host has written to something that it reads,
  /// where nobody is told. What was made from it before is then brought back, from what it was.
  bool settle_pointer_writes(const Call& call) {
    bool found = false;
    for (const ArgumentSlot& read : call.reads) {
      const StorageIndex s = recorder_.storage_of(read.value);
      if (s >= storages_.size() || !storages_.edges_written(s)) continue;
      found = true;
      host_has_written(s);
    }
    return found;
  }
  void host_has_written(StorageIndex s) {
    storages_.exchange_edges(s);
    const struct Written {
      StepStorages& storages;
      StorageIndex storage;
      ~Written() {
        storages.exchange_edges(storage);
        storages.unwatch_writes(storage);
      }
    } written{storages_, s};
    written_by_pointer(s);
  }
  /// The host is about to write to the storage.
  virtual void written_by_pointer(StorageIndex s) = 0;

  // ── bringing back ──────────────────────────────────────────────────────────────────────────────

  void bring_back(StorageIndex s) {
    if (s >= storages_.size()) return;
    storages_.settle_if_dead(s);
    if (storages_.where(s) == Where::moved_out || storages_.where(s) == Where::held_out) {
      storages_.bring_in(s);
      ++counters_.brought_back;
      came_back(s);
    } else if (storages_.where(s) == Where::dropped) {
      if (supply(s)) return;
      before_remaking();
      make_again({recorder_.newest_in(s)});
      if (storages_.where(s) == Where::dropped && recorder_.storages().alive(s))
        throw Error(Errc::capture_failed,
                    "recomputing " + detail::describe(recording(), recorder_.newest_in(s)) +
                        " gave no tensor");
      ++counters_.brought_back;
      // others that came back took its place
      if (storages_.where(s) == Where::moved_out) bring_back(s);
    }
  }

  /// Runs a recorded call again over these tensors; the generator is then where it was.
  std::vector<c10::IValue> run_again(const Call& call, NodeId node,
                                     std::span<const at::Tensor> tensors) {
    std::optional<GeneratorState> now;
    if (call.facts->random) {
      now = GeneratorState::now();
      generator_before_.at(node.index).restore();
    }
    const auto start = std::chrono::steady_clock::now();
    std::vector<c10::IValue> results;
    const auto settle = [&] {
      running_again_ = false;
      for (StorageIndex s : std::exchange(watch_again_, {})) recorder_.watch(s);
      if (now) now->restore();
    };
    try {
      running_again_ = true;
      check_operands(node, tensors);
      results = call_again(call, tensors);
      check_results(call, results, tensors);
    } catch (...) {
      settle();
      throw;
    }
    settle();
    counters_.extra_time +=
        {std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
             .count()};
    ++counters_.recomputed;
    return results;
  }

  /// A tensor of this value over memory that is there, or is brought back for it.
  at::Tensor tensor_of(ValueId v) {
    const ValueId maker = recorder_.maker_of(v);
    const RecordedValue& value = recording().values[maker.index];
    if (value.origin == Origin::scalar) return tensor_of_number(value);
    const StorageIndex s = recorder_.storage_of(maker);
    bring_back(s);
    if (recorder_.host_has_written(s)) throw written_too_late(maker);
    c10::Storage memory = storages_.memory_of(s);
    // an empty tensor is always there
    if (!memory && std::ranges::find(value.geometry.sizes, 0) != value.geometry.sizes.end())
      memory = no_bytes().storage();
    if (!memory)
      throw Error(Errc::capture_failed, detail::describe(recording(), maker) + " is gone");
    return over(memory, v);
  }

  [[nodiscard]] static at::Tensor no_bytes() {
    const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
    return at::empty({0});
  }

  [[nodiscard]] at::Tensor over(const c10::Storage& storage, ValueId v) const {
    static const at::Tensor like = no_bytes();
    return tensor_over(storage, recording().values[v.index].geometry, like);
  }

  // ── what an op overwrites ──────────────────────────────────────────────────────────────────────

  /// The contents of the storage end here. Whatever is dropped and could only be made from them is
  /// brought back now.
  void end_version(StorageIndex s) {
    const ValueId source = recorder_.newest_in(s);
    if (!source.valid()) return;
    if (!pure(source)) tell_of_dependants(source);
    if (makeable(source)) return;
    const Dependants lost = dependants_of(source);
    for (ValueId v : lost.others) makeable_[v.index] = false;
    for (ValueId v : lost.dropped) {
      bring_back(recorder_.storage_of(v));
      // from here on it is moved out where it has to go, even to bring another one back
      makeable_[v.index] = false;
    }
    for (ValueId v : lost.others) came_back(recorder_.storage_of(v));
    for (ValueId v : lost.dropped) came_back(recorder_.storage_of(v));
    readers_[source.index].clear();
  }

  /// The host has changed what something dropped has to be made from.
  [[nodiscard]] Error written_too_late(ValueId source) const {
    return Error(Errc::capture_failed,
                 "the host has written into " + detail::describe(recording(), source) +
                     " after ops had read it, and what they made from it was dropped. LibTorch "
                     "before 2.13 does not "
                     "tell of it beforehand: say step.pin(tensor) before taking a pointer");
  }
  /// Whether something is dropped that could only be made from it.
  [[nodiscard]] bool is_awaited(ValueId source) const {
    return !dependants_of(source).dropped.empty();
  }

  /// The contents are about to be let go, and cannot be made again. False where something dropped
  /// could only be made from them.
  [[nodiscard]] bool forget_source(ValueId source) {
    const Dependants lost = dependants_of(source);
    bool needed = false;
    for (ValueId v : lost.dropped) needed = !supply(recorder_.storage_of(v)) || needed;
    if (needed) return false;
    for (ValueId v : lost.dropped) makeable_[v.index] = false;
    for (ValueId v : lost.others) {
      makeable_[v.index] = false;
      came_back(recorder_.storage_of(v));
    }
    return true;
  }

  /// Memory that is held after its tensors have died is given back, unless something could only be
  /// made from it.
  void let_held_go(StorageIndex s) {
    if (s >= storages_.size() || storages_.where(s) != Where::held) return;
    const ValueId newest = recorder_.newest_in(s);
    freeing_ = true;
    if (makeable(newest) || forget_source(newest)) storages_.release_held(s);
    freeing_ = false;
  }

  /// Tells of everything that has been made from contents that end here and never come again: how
  /// long that lives is part of the stream. Depends on the stream alone, not on what is in memory,
  /// so that a step that follows its plan makes the stream that was planned.
  void tell_of_dependants(ValueId source) {
    for_each_made_from(source, [&](ValueId v) {
      if (!pure(v)) return false;
      pure_[v.index] = false;
      const StorageIndex t = recorder_.storage_of(v);
      if (recorder_.storages().alive(t) && recorder_.newest_in(t) == v) marks_[t].told = true;
      return true;
    });
  }

  /// The contents of this storage are no longer those of any value; what they were can only be made
  /// again.
  void spoil(StorageIndex s) {
    marks_[s].spoiled = true;
    marks_[s].pinned = true;
  }

  /// What it takes to have the storage back: to run again all that lies between it and what is
  /// there, and what was dropped and waits for it; or to write it out and read it in. Either has
  /// its price for the smallest tensor too, or a thousand of them would go to make room for one.
  [[nodiscard]] Microseconds cost_of(StorageIndex s) {
    const ValueId newest = recorder_.newest_in(s);
    const auto bytes = static_cast<double>(storages_.bytes(s).count);
    if (!makeable(newest) || counters_.only_spills)
      return {2 * (us_a_transfer + bytes / bytes_per_us)};
    return {us_a_return + again_cost(newest) + waiting_cost(newest)};
  }

  Recorder recorder_;
  StepStorages storages_;
  std::vector<Mark> marks_;     // by StorageIndex
  std::vector<char> makeable_;  // by value: of those that brought contents
  // likewise: every call that it takes may run again, and no source has changed or died
  std::vector<char> pure_;
  // likewise: some of its storage has not been written yet
  std::vector<char> unfilled_;
  std::vector<Readers> readers_;  // by value, likewise
  GuideCounters counters_;
  const std::string* op_ = nullptr;  // the user's op that is about to run
  std::vector<StorageIndex> watch_again_;
  bool running_again_ = false;
  bool watches_sources_ = true;
  bool freeing_ = false;  // memory is given back by us, not by the user
  bool ran_out_ = false;  // of memory, in this step

  /// Thrown by what cannot or must not go on recomputing as it does; caught by the outermost
  /// recomputation, which does it otherwise.
  struct GiveWay {};
  /// Whether the outermost recomputation knows another way: pins of the inner ones are then taken
  /// off.
  [[nodiscard]] bool can_give_way() const {
    return restoring_ || (nested_ > 1 && ran_out_ && !counters_.only_spills);
  }

 private:
  /// What can only be made from a value, as long as nothing that is there lies in between.
  struct Dependants {
    std::vector<ValueId> dropped{};  ///< under tensors of the user's
    std::vector<ValueId> others{};
  };

  using MadeStorages = std::unordered_map<std::uint32_t, c10::Storage>;  // by value
  using ReadCounts = std::unordered_map<std::uint32_t, int>;             // by value: reads to come

  static constexpr double bytes_per_us = 1000;  // a guess at a disk: 1 GB/s
  // and a guess at what the file system takes for itself
  static constexpr double us_a_transfer = 100;
  static constexpr double us_a_return = 20;  // what it takes us to run anything again
  static constexpr std::size_t most_again = 64;
  static constexpr std::size_t most_neighbours = 8;
  static constexpr int most_nested = 200;

  // What calls have made from a value, and from what they made, as far as `visit` says to go on
  // from it.
  template <class Visit>
  void for_each_made_from(ValueId source, const Visit& visit) const {
    std::vector<ValueId> stack{source};
    while (!stack.empty()) {
      const ValueId from = stack.back();
      stack.pop_back();
      if (from.index >= readers_.size()) continue;
      for (NodeId node : readers_[from.index])
        for (const ResultSlot& slot : recording().calls[node.index].results)
          if (visit(slot.value)) stack.push_back(slot.value);
    }
  }

  [[nodiscard]] Dependants dependants_of(ValueId source) const {
    Dependants found;
    std::unordered_set<std::uint32_t> seen;
    for_each_made_from(source, [&](ValueId v) {
      if (!makeable(v) || !seen.insert(v.index).second) return false;
      const StorageIndex s = recorder_.storage_of(v);
      const bool dropped = storages_.where(s) == Where::dropped && recorder_.newest_in(s) == v;
      (dropped ? found.dropped : found.others).push_back(v);
      return !dropped && !is_there(v) && !has_elsewhere(v);
    });
    return found;
  }

  // None where there is nothing to compare: not in memory, never filled, or perhaps still being
  // filled.
  [[nodiscard]] c10::Storage memory_to_check(ValueId v) const {
    const StorageIndex s = recorder_.storage_of(v);
    if (s == no_storage || s >= storages_.size()) return {};
    const NodeId maker = recording().values[recorder_.maker_of(v).index].producer;
    const Call* call = maker.valid() ? &recording().calls[maker.index] : nullptr;
    const bool settled = call == nullptr || call->kind != CallKind::op || !may_linger(*call);
    return settled && !unfilled_[recorder_.maker_of(v).index] ? storages_.memory_of(s)
                                                              : c10::Storage{};
  }

  void check_operands(NodeId node, std::span<const at::Tensor> tensors) const {
    for (std::size_t k = 0; checks_ && k < tensors.size(); ++k)
      if (tensors[k].defined())
        checks_->check_operand(recording(), node, k, *tensors[k].storage().unsafeGetStorageImpl());
  }
  void check_results(const Call& call, const std::vector<c10::IValue>& results,
                     std::span<const at::Tensor> tensors) const {
    if (!checks_) return;
    for (const ResultSlot& slot : call.results) {
      if (recording().values[slot.value.index].alias_of.valid()) continue;
      const at::Tensor tensor = result_again(call, slot, results, tensors);
      if (tensor.defined())
        checks_->check_result(recording(), slot.value, *tensor.storage().unsafeGetStorageImpl(),
                              true);
    }
  }

  void note_result(const Call& call, const ResultSlot& result, bool exposed) {
    const StorageIndex s = recorder_.storage_of(result.value);
    if (s == no_storage) return;
    if (may_linger(call)) linger(s);
    if (call.kind == CallKind::op && call.facts->read_by_host) marks_[s].pinned = true;
    if (recording().values[result.value.index].alias_of.valid()) return;
    const ValueId before = recording().values[result.value.index].overwrites;
    const bool repeatable = call.repeatable && !exposed &&
                            !(result.from == ResultSlot::From::argument && marks_[s].exposed);
    const ValueId from = before.valid() ? recorder_.maker_of(before) : ValueId{};
    unfilled_[result.value.index] = is_unfilled(call, result, from);
    makeable_[result.value.index] = repeatable && (!from.valid() || makeable(from));
    pure_[result.value.index] = repeatable && (!from.valid() || pure(from));
    if (result.from == ResultSlot::From::argument) storages_.look_at(s);
    marks_[s].unread = true;
    marks_[s].factory = call.reads.empty() || (!watches_host() && call.facts->makes_room);
    if (!pure_[result.value.index]) marks_[s].told = true;
  }

  // Whether some of the value's storage holds whatever lay there: the rest has not been written
  // yet.
  [[nodiscard]] bool is_unfilled(const Call& call, const ResultSlot& result, ValueId from) const {
    if (call.kind == CallKind::op && call.facts->unfilled) return true;
    if (!from.valid() || !unfilled_[from.index]) return false;
    const Geometry& g = recording().values[result.value.index].geometry;
    std::int64_t written = static_cast<std::int64_t>(c10::elementSize(g.dtype));
    for (const std::int64_t size : g.sizes) written *= size;
    return written < storages_.bytes(recorder_.storage_of(result.value)).count;
  }

  // The calls that would have to run for the value, each once. Of one that takes very many it is
  // known soon enough that it is dear.
  [[nodiscard]] double again_cost(ValueId value) {
    counted_.resize(recording().calls.size(), 0);
    ++count_;
    c10::SmallVector<ValueId, 16> wanted{value};
    double cost = 0;
    for (std::size_t calls = 0; !wanted.empty() && calls < most_again;) {
      const NodeId node = recording().values[wanted.pop_back_val().index].producer;
      if (!node.valid() || std::exchange(counted_[node.index], count_) == count_) continue;
      ++calls;
      const Call& call = recording().calls[node.index];
      cost += call.time.count;
      for (const ArgumentSlot& read : call.reads) {
        if (!read.value.valid() || is_moved_statistic(call, read)) continue;
        const ValueId from = recorder_.maker_of(read.value);
        if (recorder_.storage_of(from) < marks_.size() && !is_there(from)) wanted.push_back(from);
      }
    }
    return cost;
  }

  // What is dropped and made from the value directly. What has died beside it is not wanted back.
  [[nodiscard]] double waiting_cost(ValueId value) const {
    double cost = 0;
    std::size_t looked = 0;
    for (NodeId reader : readers_[value.index]) {
      // a value that everything reads: its price need not be exact
      if (++looked > most_neighbours) break;
      const Call& call = recording().calls[reader.index];
      const bool waits = std::ranges::any_of(call.results, [&](const ResultSlot& result) {
        const StorageIndex s = recorder_.storage_of(result.value);
        return s < storages_.size() && storages_.where(s) == Where::dropped;
      });
      if (waits) cost += call.time.count;
    }
    return cost;
  }

  [[nodiscard]] bool is_there(ValueId maker) const {
    const RecordedValue& value = recording().values[maker.index];
    if (value.origin == Origin::scalar) return true;
    const StorageIndex s = recorder_.storage_of(maker);
    if (s == no_storage || marks_[s].spoiled) return false;
    if (!value.producer.valid()) return storages_.where(s) != Where::gone;
    if (recorder_.newest_in(s) != maker) return false;
    return storages_.where(s) != Where::dropped && storages_.where(s) != Where::gone;
  }

  void make_again(std::vector<ValueId> wanted) {
    if (nested_ > 0) return run_all(std::move(wanted));
    try {
      run_all(wanted);
    } catch (const GiveWay&) {
      spill_from_here_on();
      run_all(std::move(wanted));
    }
  }

  // Everything that is evicted comes back, in one pass: each call runs once. Where the pass does
  // not fit, which may be so where it needs at once what was never there at once, each storage
  // comes back when it is read.
  void spill_from_here_on() {
    counters_.only_spills = true;
    begin_spilling();
    std::vector<ValueId> all;
    for (StorageIndex s = 0; s < storages_.size(); ++s)
      if (storages_.where(s) == Where::dropped && recorder_.storages().alive(s))
        all.push_back(recorder_.newest_in(s));
    restoring_ = true;
    try {
      run_all(std::move(all));
    } catch (const GiveWay&) {
    } catch (...) {
      restoring_ = false;
      throw;
    }
    restoring_ = false;
  }

  // Runs again whatever is needed to have these values, each call once, in the order in which they
  // ran.
  void run_all(std::vector<ValueId> wanted) {
    if (nested_ >= most_nested && can_give_way()) throw GiveWay{};
    if (nested_ >= most_nested)
      throw Error(Errc::budget_unreachable, "the budget is too small to make again what " +
                                                (op_ != nullptr ? *op_ : "the step") + " reads");
    struct Level {
      int& level;
      ~Level() { --level; }
    } const level{++nested_};
    const auto existing_peaks = cpu_memory().existing_peaks();
    ReadCounts reads;
    Needed held(marks_);
    std::vector<NodeId> calls = calls_for(wanted, reads, held);
    bool settled = false;
    for (NodeId node : calls)
      settled = settle_pointer_writes(recording().calls[node.index]) || settled;
    if (settled) {  // much has been made again meanwhile, and some of it cannot be any more
      reads.clear();
      std::erase_if(wanted, [&](ValueId v) { return is_there(v); });
      calls = calls_for(std::move(wanted), reads, held);
    }
    const std::int64_t would_be = again_ + static_cast<std::int64_t>(calls.size());
    const bool too_many = would_be > recompute_bound(recording().calls.size());
    if (too_many && ran_out_ && !counters_.only_spills) throw GiveWay{};
    MadeStorages made;
    for (NodeId node : calls) {
      ++again_;
      run_for(node, reads, made);
    }
    cpu_memory().forget_existing_peaks_since(existing_peaks);
  }

  // `held`: what they start from and nobody else keeps; given up to make room for one of them, it
  // would be gone for the others.
  std::vector<NodeId> calls_for(std::vector<ValueId> wanted, ReadCounts& reads,
                                Needed& held) const {
    std::unordered_set<std::uint32_t> seen;
    std::vector<NodeId> calls;
    while (!wanted.empty()) {
      const ValueId maker = wanted.back();
      wanted.pop_back();
      if (is_there(maker)) {
        const StorageIndex s = recorder_.storage_of(maker);
        if (s != no_storage && storages_.where(s) == Where::held) held.add(s);
        continue;
      }
      const NodeId node = recording().values[maker.index].producer;
      if (!node.valid() || !recording().calls[node.index].repeatable)
        throw Error(Errc::capture_failed,
                    detail::describe(recording(), maker) + " cannot be made again");
      if (!seen.insert(node.index).second) continue;
      calls.push_back(node);
      for (const ArgumentSlot& read : recording().calls[node.index].reads) {
        if (!read.value.valid() || is_moved_statistic(recording().calls[node.index], read))
          continue;
        const ValueId from = recorder_.maker_of(read.value);
        if (updated_at_[from.index].valid() && updated_at_[from.index] > node)
          throw Error(Errc::capture_failed,
                      detail::describe(recording(), maker) + " cannot be made again: " +
                          detail::describe(recording(), from) + " has been changed since");
        ++reads[from.index];
        wanted.push_back(from);
      }
    }
    std::ranges::sort(calls);
    return calls;
  }

  void run_for(NodeId node, ReadCounts& reads, MadeStorages& made) {
    const Call& call = recording().calls[node.index];
    Needed needed(marks_);
    std::vector<at::Tensor> tensors(call.reads.size());
    // all must be there at once: getting one may take another
    for (std::size_t k = 0; k < call.reads.size(); ++k) {
      const ArgumentSlot& read = call.reads[k];
      if (!read.value.valid() || is_moved_statistic(call, read)) continue;
      const ValueId maker = recorder_.maker_of(read.value);
      const StorageIndex s = recorder_.storage_of(maker);
      const auto it = made.find(maker.index);
      if (it != made.end()) {
        tensors[k] = over(it->second, read.value);
        continue;
      }
      if (s != no_storage) needed.add(s);
      tensors[k] = tensor_of(read.value);
    }
    const std::vector<c10::IValue> results = run_again(call, node, tensors);
    for (const ResultSlot& slot : call.results) {
      if (recording().values[slot.value.index].alias_of.valid()) continue;
      const at::Tensor tensor = result_again(call, slot, results, tensors);
      if (tensor.defined()) place(slot.value, tensor.storage(), reads, made);
    }
    for (const ArgumentSlot& read : call.reads) {
      if (!read.value.valid() || is_moved_statistic(call, read)) continue;
      const auto it = made.find(recorder_.maker_of(read.value).index);
      if (--reads[recorder_.maker_of(read.value).index] == 0 && it != made.end()) made.erase(it);
    }
  }

  // What was made goes back under the user's tensors where they hold just this, else stays for the
  // rest of the batch.
  void place(ValueId value, c10::Storage storage, const ReadCounts& reads, MadeStorages& made) {
    const StorageIndex s = recorder_.storage_of(value);
    if (storages_.where(s) == Where::dropped && recorder_.newest_in(s) == value) {
      storages_.put_back(
          s, std::exchange(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(),
                           c10::DataPtr{}));
      came_back(s);
      return;
    }
    const auto it = reads.find(value.index);
    const bool overwritten_later = it != reads.end() && it->second > 0;
    if (overwritten_later && !is_there(value)) made[value.index] = std::move(storage);
  }

  std::unordered_map<std::size_t, GeneratorState> generator_before_;  // by call
  // by value from before the step: the last call that wrote it
  std::vector<NodeId> updated_at_;
  std::optional<ContentChecks> checks_;
  std::vector<std::uint32_t> counted_;  // by call: the count of costs that it was last a part of
  std::uint32_t count_ = 0;
  std::int64_t again_ = 0;  // calls that were run again outside of any plan
  int nested_ = 0;
  bool restoring_ = false;  // all that is evicted comes back
};

}  // namespace reprise
