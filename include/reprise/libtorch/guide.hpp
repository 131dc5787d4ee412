#pragma once
// One step of the user's own code, kept inside a budget while it runs: the recorder sees each op before it runs, and the guide
// brings back what the op reads; after it, the guide gives up what the plan gives up.
//
//   user's op        conv  relu  pool ........ grad (reads relu's result through a saved tensor)
//   the guide                        drop relu ▲ conv, relu run again from *this* step's calls; the bytes go back under the tensor
//
// Two ways to decide what goes:
//   planned   the stream of ops matches a plan, node by node: drops and recomputations stand where the plan has them
//   online    no plan, or the stream has left it: when an allocation would pass the budget, an eviction policy picks
//
// Either way whatever an op reads is there when it runs, and what could not be made again is never dropped: before an op writes
// to something that a dropped value would be made from, that value is brought back.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include <reprise/guide/eviction.hpp>
#include <reprise/guide/followed_plan.hpp>
#include <reprise/libtorch/call_again.hpp>
#include <reprise/libtorch/generator_state.hpp>
#include <reprise/libtorch/graph_of.hpp>
#include <reprise/libtorch/recorder.hpp>
#include <reprise/libtorch/step_storages.hpp>

namespace reprise {

namespace detail {

/// Whether a call asks for the same op of the same values. Numbers may differ: what is run again is run with this step's.
[[nodiscard]] inline bool same_reads(const Call& a, const Call& b) {
  if (a.kind != b.kind || a.facts != b.facts || a.reads.size() != b.reads.size()) return false;
  if (a.kind == CallKind::op && !(a.op->schema().overload_name() == b.op->schema().overload_name())) return false;
  return std::ranges::equal(a.reads, b.reads, [](const ArgumentSlot& x, const ArgumentSlot& y) {
    return x.arg == y.arg && x.element == y.element && x.value == y.value;
  });
}
[[nodiscard]] inline bool same_results(const Call& a, const Call& b) {
  return a.updates == b.updates && std::ranges::equal(a.results, b.results, {}, &ResultSlot::value, &ResultSlot::value);
}
/// Where in its storage a batch lies may differ, and whether something from before the step outlives it.
[[nodiscard]] inline bool same_value(const RecordedValue& a, const RecordedValue& b) {
  return a.bytes == b.bytes && a.alias_of == b.alias_of && a.overwrites == b.overwrites && a.producer == b.producer &&
         a.geometry.sizes == b.geometry.sizes && a.geometry.strides == b.geometry.strides && a.geometry.dtype == b.geometry.dtype;
}

}  // namespace detail

/// Whether two steps made the same stream of ops.
[[nodiscard]] inline bool same_stream(const Recording& a, const Recording& b) {
  return std::ranges::equal(a.values, b.values, detail::same_value) &&
         std::ranges::equal(a.calls, b.calls, [](const Call& x, const Call& y) {
           return detail::same_reads(x, y) && detail::same_results(x, y) && x.repeatable == y.repeatable;
         });
}

/// A recorded stream with its graph and the plan to follow when it comes again.
struct PlannedStream {
  Recording recording{};
  StepGraph graph{};
  std::optional<FollowedPlan> plan{};
};

/// What happened in one step.
struct GuideCounters {
  std::int64_t recomputed = 0;  ///< ops that were run again
  std::int64_t evicted = 0;     ///< storages that were given up online
  std::int64_t brought_back = 0;
  Microseconds extra_time{};  ///< spent on running again
  bool followed = false;      ///< a plan, from the first op to the last
  bool carried_out = false;   ///< all that the plan runs again was run again, whatever came afterwards
  std::size_t left_at = 0;    ///< the node at which the stream was another one
  std::string left_because{};
};

template <EvictionPolicy Policy>
class Guide final : public RecorderHooks, public MemoryGate, public StorageOwner {
 public:
  enum class OverBudget : std::uint8_t { error, go_on };

  /// What to follow, asked at the first op: what the step starts from is known then. None for no plan.
  using Choose = std::function<std::shared_ptr<const PlannedStream>(Bytes base)>;

  /// `limit` 0: none.
  Guide(Bytes limit, OverBudget over, SpillFile& file, Policy policy, Choose choose)
      : limit_(limit),
        over_(over),
        policy_(std::move(policy)),
        choose_(std::move(choose)),
        recorder_(this),
        storages_(recorder_, *this, file) {
    recorder_.give_each_number_a_value();
    memory_gate() = this;
  }
  ~Guide() override { stop(); }
  Guide(const Guide&) = delete;
  Guide& operator=(const Guide&) = delete;

  [[nodiscard]] Recorder& recorder() { return recorder_; }
  [[nodiscard]] const GuideCounters& counters() const { return counters_; }
  [[nodiscard]] const TransferStats& transfers() const { return storages_.transfers(); }
  [[nodiscard]] bool following() const { return stream_ != nullptr; }
  [[nodiscard]] bool went_over() const { return went_over_; }

  /// The host may read and write it as it likes: it is brought back and never touched again.
  void pin(const at::Tensor& tensor) {
    if (!tensor.defined() || !is_plain(tensor)) return;
    const StorageIndex s = recorder_.storages().find(tensor.storage().unsafeGetStorageImpl());
    if (s == no_storage) return;
    storages_.catch_up();
    catch_up_marks();
    bring_back(s);
    static_cast<void>(host_access(s));
  }

  /// Ends the step: everything alive is brought back, inside the limit. Throws where that does not fit.
  [[nodiscard]] Recording finish() {
    recorder_.add_releases();
    if (stream_ != nullptr) follow_to(NodeId{recorder_.calls_seen()}, true);
    counters_.followed = stream_ != nullptr;
    leave_plan("the step has ended");
    running_.clear();
    for (StorageIndex s = 0; s < storages_.size(); ++s) {
      if (!recorder_.storages().alive(s)) continue;
      running_.insert(s);
      bring_back(s);
    }
    memory_gate() = nullptr;
    Recording recording = recorder_.finish();
    storages_.let_go();
    return recording;
  }

  // ── around each op ────────────────────────────────────────────────────────────────────────────────────────────────────

  void ready(const Call& call, std::span<const StorageIndex> writes) override {
    ++clock_;
    op_ = call.facts->name;
    storages_.catch_up();
    catch_up_marks();
    running_.clear();
    choose();
    for (const ArgumentSlot& read : call.reads)
      if (const StorageIndex s = recorder_.storage_of(read.value); s != no_storage) running_.insert(s);
    if (call.facts->random) generator_before_[recorder_.calls_seen()] = GeneratorState::now();
    if (stream_ != nullptr) follow_to(NodeId{recorder_.calls_seen()}, false);
    if (stream_ != nullptr && !same_call(stream_->recording, NodeId{recorder_.calls_seen()}, call)) leave_plan("another op came");
    for (const ArgumentSlot& read : call.reads) {
      const StorageIndex s = recorder_.storage_of(read.value);
      if (s == no_storage) continue;
      if (!call.facts->views_only) bring_back(s);
      if (!call.facts->name.starts_with("aten::")) marks_[s].pinned = true;  // it may go on working on it behind our back
    }
    for (StorageIndex s : writes) end_version(s);
  }

  void after(const c10::OperatorHandle& /*op*/, c10::ArrayRef<c10::IValue> /*results*/, NodeId node) override {
    const Call& call = recorder_.recording().calls[node.index];
    storages_.catch_up();
    catch_up_marks();
    note_call(call, node);
    if (stream_ != nullptr) {
      if (same_results(node)) finish_node(node);
      else leave_plan("an op made something else");
    }
    if (online_) touch_all(call);
    running_.clear();
    op_.clear();
  }

  bool host_access(StorageIndex s) override {
    if (running_again_) {  // a kernel of ours, not the host
      watch_again_.push_back(s);
      return true;
    }
    storages_.catch_up();
    catch_up_marks();
    const ValueId newest = recorder_.newest_in(s);
    const NodeId maker = newest.valid() ? recording().values[newest.index].producer : NodeId{};
    const bool expected = stream_ != nullptr && maker.valid() && !stream_->graph.node(maker).recomputable;
    if (!expected) leave_plan("the host took a pointer");
    if (maker.valid()) recorder_.forbid_again(maker);
    if (newest.valid())
      for (NodeId reader : readers_[newest.index]) recorder_.forbid_again(reader);  // what it read may be gone by the next time
    if (newest.valid()) makeable_[newest.index] = false;
    end_version(s);
    marks_[s].pinned = true;
    marks_[s].exposed = true;
    marks_[s].told = true;
    policy_.erase(s);
    return true;
  }

  // ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────────

  void before_allocation(Bytes bytes) override {
    if (limit_ <= Bytes{0} || cpu_memory().live() + bytes <= limit_) return;
    leave_plan("memory ran out");
    go_online();
    while (cpu_memory().live() + bytes > limit_) {
      const auto victim = policy_.pick(clock_, [this](std::uint32_t s) { return may_go(s); });
      if (!victim) {
        if (over_ == OverBudget::error) throw too_small(bytes);
        went_over_ = true;
        return;
      }
      evict(*victim);
    }
  }
  [[nodiscard]] Microseconds time_spent() const override { return storages_.transfers().time_out + storages_.transfers().time_in; }
  void after_release(Bytes bytes, std::uint64_t serial) override {
    if (serial <= recorder_.start_serial() && !freeing_ && recorder_.is_on()) recorder_.note_release(bytes);
  }

  bool died(StorageIndex s) override {
    policy_.erase(s);
    if (s >= marks_.size()) return false;
    if (recorder_.is_on() && (marks_[s].told || recorder_.is_persistent(s))) recorder_.note_release(s);
    if (stream_ != nullptr) return marks_[s].instance != no_index && instances_[marks_[s].instance].live;
    const ValueId v = recorder_.newest_in(s);
    if (!v.valid() || makeable(v)) return false;
    bool wanted = false;
    for (ValueId dependant : dependants_of(v)) {  // they were made from this: from now on they can only be kept
      const StorageIndex t = recorder_.storage_of(dependant);
      makeable_[dependant.index] = false;
      if (!recorder_.storages().alive(t) || recorder_.newest_in(t) != dependant) continue;
      marks_[t].told = true;
      wanted = wanted || storages_.where(t) == Where::dropped;
    }
    return wanted;
  }

 private:
  /// What the guide knows of a storage.
  struct Mark {
    bool pinned = false;                ///< never dropped or moved
    bool exposed = false;               ///< the host may write it at any time
    bool told = false;                  ///< its death is part of the stream: it could not be made again while it lived
    std::uint32_t instance = no_index;  ///< planned: the plan's storage instance that lies in it
  };
  /// One of the plan's storage instances: in the user's storage, or here.
  struct Instance {
    bool live = false;
    StorageIndex user = no_storage;
    c10::Storage own{};
    ValueId newest{};
  };

  void choose() {
    if (!choose_) return;
    chosen_ = std::exchange(choose_, {})(recorder_.base());
    stream_ = chosen_.get();
    if (stream_ != nullptr) instances_.resize(stream_->plan->resolution().storages.size());
  }

  void stop() {
    if (memory_gate() == this) memory_gate() = nullptr;
    leave_plan("the step has ended");
    limit_ = {};
    for (StorageIndex s = 0; s < storages_.size(); ++s) {
      try {
        if (recorder_.is_on() && recorder_.storages().alive(s)) bring_back(s);
      } catch (const std::exception&) {  // reading it throws and says why
      }
    }
    recorder_.switch_off();
    storages_.let_go();
  }

  void catch_up_marks() {
    marks_.resize(storages_.size());
    makeable_.resize(recorder_.recording().values.size(), false);
    readers_.resize(recorder_.recording().values.size());
  }

  [[nodiscard]] const Recording& recording() const { return recorder_.recording(); }
  [[nodiscard]] bool makeable(ValueId maker) const { return maker.index < makeable_.size() && makeable_[maker.index]; }

  void note_call(const Call& call, NodeId node) {
    bool exposed = false;
    for (ValueId v : call.updates) updated_at_[v.index] = node;
    for (const ArgumentSlot& read : call.reads) {
      if (!read.value.valid()) continue;
      const StorageIndex s = recorder_.storage_of(read.value);
      if (s != no_storage && marks_[s].exposed) exposed = true;
      if (is_moved_statistic(call, read)) continue;
      auto& list = readers_[recorder_.maker_of(read.value).index];
      if (list.empty() || list.back() != node) list.push_back(node);
    }
    if (exposed) recorder_.forbid_again(node);
    for (const ResultSlot& result : call.results) {
      const StorageIndex s = recorder_.storage_of(result.value);
      if (s == no_storage || recording().values[result.value.index].alias_of.valid()) continue;
      makeable_[result.value.index] = call.repeatable && !exposed;
      if (result.from == ResultSlot::From::argument) {
        storages_.look_at(s);
        const ValueId before = recording().values[result.value.index].overwrites;
        if (before.valid() && !makeable(recorder_.maker_of(before))) makeable_[result.value.index] = false;
        if (marks_[s].exposed) makeable_[result.value.index] = false;
      }
      if (!makeable_[result.value.index]) marks_[s].told = true;
      if (!call.facts->name.starts_with("aten::") && !call.facts->repeatable) marks_[s].pinned = true;
    }
  }

  // ── bringing back ─────────────────────────────────────────────────────────────────────────────────────────────────────

  void bring_back(StorageIndex s) {
    if (s >= storages_.size()) return;
    if (storages_.where(s) == Where::moved_out) {
      storages_.bring_in(s);
      ++counters_.brought_back;
    } else if (storages_.where(s) == Where::dropped) {
      if (bind_instance(s)) return;
      make_again({recorder_.newest_in(s)});
      if (storages_.where(s) == Where::dropped)
        throw Error(Errc::capture_failed,
                    detail::describe(recording(), recorder_.newest_in(s)) + " came out otherwise when it was made again");
      ++counters_.brought_back;
    }
  }

  [[nodiscard]] bool is_there(ValueId maker) const {
    const RecordedValue& value = recording().values[maker.index];
    if (value.origin == Origin::scalar) return true;
    const StorageIndex s = recorder_.storage_of(maker);
    if (s == no_storage) return false;
    if (!value.producer.valid()) return storages_.where(s) != Where::gone;
    if (recorder_.newest_in(s) != maker) return false;
    return storages_.where(s) != Where::dropped && storages_.where(s) != Where::gone;
  }

  // Runs again whatever is needed to have these values, each call once, in the order in which they ran.
  void make_again(std::vector<ValueId> wanted) {
    if (++depth_ > 200) throw Error(Errc::budget_unreachable, "the budget is too small to make again what " + op_ + " reads");
    const Bytes existing_peak = cpu_memory().existing_peak();
    std::unordered_map<std::uint32_t, int> reads;  // by maker: reads to come in this batch
    const std::vector<NodeId> calls = calls_for(wanted, reads);
    std::unordered_map<std::uint32_t, c10::Storage> made;
    for (NodeId node : calls) run_for(node, reads, made);
    cpu_memory().forget_existing_peak_since(existing_peak);
    --depth_;
  }

  std::vector<NodeId> calls_for(std::vector<ValueId> wanted, std::unordered_map<std::uint32_t, int>& reads) const {
    std::unordered_set<std::uint32_t> seen;
    std::vector<NodeId> calls;
    while (!wanted.empty()) {
      const ValueId maker = wanted.back();
      wanted.pop_back();
      if (is_there(maker)) continue;
      const NodeId node = recording().values[maker.index].producer;
      if (!node.valid() || !recording().calls[node.index].repeatable)
        throw Error(Errc::capture_failed, detail::describe(recording(), maker) + " cannot be made again");
      if (!seen.insert(node.index).second) continue;
      calls.push_back(node);
      for (const ArgumentSlot& read : recording().calls[node.index].reads) {
        if (!read.value.valid() || is_moved_statistic(recording().calls[node.index], read)) continue;
        const ValueId from = recorder_.maker_of(read.value);
        const auto updated = updated_at_.find(from.index);
        if (updated != updated_at_.end() && updated->second > node)
          throw Error(Errc::capture_failed, detail::describe(recording(), maker) + " cannot be made again: " +
                                                detail::describe(recording(), from) + " has been changed since");
        ++reads[from.index];
        wanted.push_back(from);
      }
    }
    std::ranges::sort(calls);
    return calls;
  }

  void run_for(NodeId node, std::unordered_map<std::uint32_t, int>& reads, std::unordered_map<std::uint32_t, c10::Storage>& made) {
    const Call& call = recording().calls[node.index];
    const auto running = running_;
    std::vector<at::Tensor> tensors(call.reads.size());
    for (std::size_t k = 0; k < call.reads.size(); ++k) {  // all must be there at once: getting one may take another
      const ArgumentSlot& read = call.reads[k];
      if (!read.value.valid() || is_moved_statistic(call, read)) continue;
      const ValueId maker = recorder_.maker_of(read.value);
      const StorageIndex s = recorder_.storage_of(maker);
      const auto it = made.find(maker.index);
      if (it != made.end()) {
        tensors[k] = over(it->second, read.value);
        continue;
      }
      if (s != no_storage) running_.insert(s);
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
    running_ = running;
  }

  // What was made goes back under the user's tensors where they hold just this, else stays for the rest of the batch.
  void place(ValueId value, c10::Storage storage, const std::unordered_map<std::uint32_t, int>& reads,
             std::unordered_map<std::uint32_t, c10::Storage>& made) {
    const StorageIndex s = recorder_.storage_of(value);
    if (storages_.where(s) == Where::dropped && recorder_.newest_in(s) == value) {
      storages_.put_back(s, std::exchange(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(), c10::DataPtr{}));
      if (online_) touch(s);
      return;
    }
    const auto it = reads.find(value.index);
    const bool overwritten_later = it != reads.end() && it->second > 0;
    if (overwritten_later && !is_there(value)) made[value.index] = std::move(storage);
  }

  std::vector<c10::IValue> run_again(const Call& call, NodeId node, std::span<const at::Tensor> tensors) {
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
      results = call_again(call, tensors);
    } catch (...) {
      settle();
      throw;
    }
    settle();
    counters_.extra_time += {std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count()};
    ++counters_.recomputed;
    return results;
  }

  // A tensor of this value over memory that is there, or is brought back for it.
  at::Tensor tensor_of(ValueId v) {
    const ValueId maker = recorder_.maker_of(v);
    const RecordedValue& value = recording().values[maker.index];
    if (value.origin == Origin::scalar) return tensor_of_number(value);
    const StorageIndex s = recorder_.storage_of(maker);
    bring_back(s);
    const c10::Storage memory = storages_.memory_of(s);
    if (!memory) throw Error(Errc::capture_failed, detail::describe(recording(), maker) + " is gone");
    return over(memory, v);
  }

  [[nodiscard]] at::Tensor over(const c10::Storage& storage, ValueId v) const {
    static const at::Tensor like = [] {
      const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
      return at::empty({0});
    }();
    return tensor_over(storage, recording().values[v.index].geometry, like);
  }

  // ── what an op overwrites ─────────────────────────────────────────────────────────────────────────────────────────────

  // The contents of the storage end here. Whatever was made from them, is alive and could not be made again is brought back now.
  void end_version(StorageIndex s) {
    const ValueId source = recorder_.newest_in(s);
    if (!source.valid() || makeable(source)) return;
    const std::vector<ValueId> dependants = dependants_of(source);
    std::vector<ValueId> lost;
    for (ValueId v : dependants) {
      const StorageIndex t = recorder_.storage_of(v);
      const bool reachable = recorder_.storages().alive(t) && recorder_.newest_in(t) == v;
      if (reachable) marks_[t].told = true;
      if (reachable && storages_.where(t) == Where::dropped && !plan_makes_again(v)) lost.push_back(v);
      else makeable_[v.index] = false;  // from here on it is moved out where it has to go, even to bring another one back
    }
    for (ValueId v : lost) {
      bring_back(recorder_.storage_of(v));
      makeable_[v.index] = false;
    }
    if (online_)
      for (ValueId v : dependants) touch(recorder_.storage_of(v));
    readers_[source.index].clear();
  }

  // Everything that can only be made from this version of its storage.
  [[nodiscard]] std::vector<ValueId> dependants_of(ValueId source) const {
    std::vector<ValueId> found, stack{source};
    std::unordered_set<std::uint32_t> seen;
    while (!stack.empty()) {
      const ValueId from = stack.back();
      stack.pop_back();
      for (NodeId node : readers_[from.index]) {
        for (const ResultSlot& slot : recording().calls[node.index].results) {
          if (!makeable(slot.value) || !seen.insert(slot.value.index).second) continue;
          found.push_back(slot.value);
          stack.push_back(slot.value);
        }
      }
    }
    return found;
  }

  // ── following a plan ──────────────────────────────────────────────────────────────────────────────────────────────────

  // Does everything that the plan has before this node; calls that the recorder added on its own lie on the way.
  void follow_to(NodeId node, bool to_the_end) {
    while (stream_ != nullptr && next_.index < node.index) {
      run_occurrences(next_);
      if (stream_ == nullptr) return;
      const NodeId here = next_;
      if (!same_call(stream_->recording, here, recording().calls[here.index]) || !same_results(here)) return leave_plan("another op came");
      finish_node(here);
    }
    if (stream_ == nullptr) return;
    if (!to_the_end) run_occurrences(node);
    else if (node.index != stream_->plan->node_count()) leave_plan("the step ended early");
    else run_occurrences(node);
  }

  void run_occurrences(NodeId before) {
    const FollowedPlan& plan = *stream_->plan;
    if (before.index > plan.node_count()) return leave_plan("the step goes on");
    for (std::uint32_t i = plan.begin_of(before); i < plan.end_of(before); ++i) {
      run_occurrence(i);
      if (stream_ == nullptr) return;
      free_after(i);
    }
  }

  void run_occurrence(std::uint32_t i) {
    const NodeId node = stream_->plan->schedule()[i];
    const Call& call = recording().calls[node.index];
    const Resolution& resolution = stream_->plan->resolution();
    const Bytes existing_peak = cpu_memory().existing_peak();
    std::vector<at::Tensor> tensors(call.reads.size());
    for (std::size_t k = 0; k < call.reads.size(); ++k)
      if (call.reads[k].value.valid() && !is_moved_statistic(call, call.reads[k]))
        tensors[k] = planned_tensor(i, node, call.reads[k].value);
    std::vector<c10::IValue> results;
    if (call.kind == CallKind::op) results = run_again(call, node, tensors);
    if (stream_ == nullptr) return;  // memory ran out on the way
    for (std::size_t k = 0; k < call.results.size(); ++k) {
      const std::uint32_t value = resolution.outputs[i][k];
      if (value == no_index) continue;
      const std::uint32_t instance = resolution.values[value].storage;
      if (resolution.storages[instance].made_by == i && !instances_[instance].live) {
        const at::Tensor tensor = result_again(call, call.results[k], results, tensors);
        if (!tensor.defined()) return leave_plan("an op made less when it ran again");
        instances_[instance] = {true, no_storage, tensor.storage(), {}};
        cpu_memory().move_out(-resolution.storages[instance].bytes.count);
      }
      if (!recording().values[call.results[k].value.index].alias_of.valid()) set_newest(instance, call.results[k].value);
    }
    cpu_memory().forget_existing_peak_since(existing_peak);
  }

  at::Tensor planned_tensor(std::uint32_t occurrence, NodeId node, ValueId v) {
    const RecordedValue& root = recording().values[detail::root_of(recording(), v).index];
    if (!root.producer.valid()) return tensor_of(v);
    const auto inputs = stream_->graph.inputs(node);
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (inputs[k] != v) continue;
      const Instance& instance = instances_[stream_->plan->resolution().values[stream_->plan->resolution().inputs[occurrence][k]].storage];
      if (instance.own) return over(instance.own, v);
      if (instance.user != no_storage) {
        bring_back(instance.user);
        return over(storages_.memory_of(instance.user), v);
      }
    }
    return tensor_of(v);
  }

  // The user's op has run: its storages are the plan's instances; then what the plan gives up.
  void finish_node(NodeId node) {
    const Call& call = recording().calls[node.index];
    const Resolution& resolution = stream_->plan->resolution();
    const std::uint32_t i = stream_->plan->first(node);
    for (std::size_t k = 0; k < call.results.size(); ++k) {
      const std::uint32_t value = resolution.outputs[i][k];
      if (value == no_index) continue;
      const std::uint32_t instance = resolution.values[value].storage;
      const StorageIndex s = recorder_.storage_of(call.results[k].value);
      if (!recording().values[call.results[k].value.index].alias_of.valid()) set_newest(instance, call.results[k].value);
      if (resolution.storages[instance].made_by != i) continue;
      instances_[instance].live = true;
      instances_[instance].user = s;
      marks_[s].instance = instance;
    }
    next_ = NodeId{node.index + 1};
    free_after(i);
  }

  void free_after(std::uint32_t occurrence) {
    for (std::uint32_t instance : stream_->plan->frees(occurrence)) {
      Instance& it = instances_[instance];
      if (!it.live) continue;
      it.live = false;
      if (it.own) release_own(instance);
      else if (it.user != no_storage) give_up(it.user, instance);
    }
  }

  void release_own(std::uint32_t index) {
    forget_own(index);
    instances_[index].own = {};
    cpu_memory().move_out(stream_->plan->resolution().storages[index].bytes.count);
  }

  void give_up(StorageIndex s, std::uint32_t instance) {
    if (marks_[s].instance != instance) return;
    marks_[s].instance = no_index;
    if (storages_.where(s) == Where::held) return storages_.release_held(s);
    const ValueId newest = recorder_.newest_in(s);
    if (storages_.where(s) != Where::resident || marks_[s].pinned) return;
    if (makeable(newest) || plan_makes_again(newest)) storages_.drop(s);
  }

  [[nodiscard]] bool plan_makes_again(ValueId v) const {
    return stream_ != nullptr && v.index < stream_->graph.value_count() && stream_->plan->last_made(v) >= stream_->plan->begin_of(next_);
  }

  // The plan has made this storage's contents again, in memory of its own: they go under the user's tensors.
  bool bind_instance(StorageIndex s) {
    if (stream_ == nullptr) return false;
    const auto own = own_of_.find(recorder_.newest_in(s).index);
    if (own == own_of_.end()) return false;
    Instance& instance = instances_[own->second];
    cpu_memory().move_out(storages_.bytes(s).count);
    storages_.put_back(s, std::exchange(instance.own.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(), c10::DataPtr{}));
    instance.own = {};
    instance.user = s;
    marks_[s].instance = own->second;
    own_of_.erase(own);
    return true;
  }

  // Notes which value lies in an instance now, so that it is found when the user's op reads it.
  void set_newest(std::uint32_t index, ValueId newest) {
    Instance& instance = instances_[index];
    if (instance.own && instance.newest.valid()) forget_own(index);
    instance.newest = newest;
    if (instance.own) own_of_[newest.index] = index;
  }
  void forget_own(std::uint32_t index) {
    const auto it = own_of_.find(instances_[index].newest.index);
    if (it != own_of_.end() && it->second == index) own_of_.erase(it);
  }

  // From here on the step goes on without the plan. What the plan holds goes under the user's tensors, or is let go.
  void leave_plan(const char* why) {
    if (stream_ == nullptr) return;
    counters_.carried_out = next_.index >= stream_->plan->last_again().index;
    counters_.left_at = next_.index;
    counters_.left_because = why;
    for (std::uint32_t i = 0; i < instances_.size(); ++i) {
      if (!instances_[i].own) continue;
      const StorageIndex s = recorder_.storage_of(instances_[i].newest);
      const bool newest = recorder_.newest_in(s) == instances_[i].newest;
      if (newest && storages_.where(s) == Where::dropped && bind_instance(s)) continue;
      if (newest && storages_.where(s) == Where::gone) {  // a source of something that is dropped, perhaps
        storages_.hold(s, std::exchange(instances_[i].own, {}));
        if (online_) touch(s);
      } else {
        release_own(i);
      }
    }
    stream_ = nullptr;
    for (Mark& mark : marks_) mark.instance = no_index;
  }

  [[nodiscard]] bool same_call(const Recording& known, NodeId node, const Call& call) {
    return node.index < known.calls.size() && detail::same_reads(call, known.calls[node.index]) && same_values(known);
  }

  // Values that have come since the last look.
  [[nodiscard]] bool same_values(const Recording& known) {
    for (; compared_ < recording().values.size(); ++compared_)
      if (compared_ >= known.values.size() || !detail::same_value(recording().values[compared_], known.values[compared_])) return false;
    return true;
  }

  [[nodiscard]] bool same_results(NodeId node) {
    return detail::same_results(recording().calls[node.index], stream_->recording.calls[node.index]) && same_values(stream_->recording);
  }

  // ── without a plan ────────────────────────────────────────────────────────────────────────────────────────────────────

  void go_online() {
    if (online_) return;
    online_ = true;
    storages_.catch_up();
    catch_up_marks();
    for (StorageIndex s = 0; s < storages_.size(); ++s) touch(s);
  }

  [[nodiscard]] bool may_go(StorageIndex s) const {
    if (running_.contains(s) || marks_[s].pinned) return false;
    return storages_.where(s) == Where::resident || (storages_.where(s) == Where::held && makeable(recorder_.newest_in(s)));
  }

  void touch_all(const Call& call) {
    for (const ArgumentSlot& read : call.reads)
      if (const StorageIndex s = recorder_.storage_of(read.value); s != no_storage) touch(s);
    for (const ResultSlot& result : call.results)
      if (const StorageIndex s = recorder_.storage_of(result.value); s != no_storage) touch(s);
  }

  void touch(StorageIndex s) {
    const bool in_memory = storages_.where(s) == Where::resident || storages_.where(s) == Where::held;
    if (!in_memory || storages_.bytes(s) == Bytes{0} || marks_[s].pinned) return policy_.erase(s);
    policy_.touch(s, {storages_.bytes(s), cost_of(s), clock_});
  }

  // To make it again, with what of its neighbours is gone; or to write it out and read it in.
  [[nodiscard]] Microseconds cost_of(StorageIndex s) const {
    const ValueId newest = recorder_.newest_in(s);
    if (!makeable(newest)) return {2 * static_cast<double>(storages_.bytes(s).count) / bytes_per_us};
    double cost = 0;
    for (ValueId v = newest; v.valid(); v = recording().values[v.index].overwrites) {
      v = recorder_.maker_of(v);
      const NodeId node = recording().values[v.index].producer;
      if (!node.valid()) break;
      const Call& call = recording().calls[node.index];
      cost += call.time.count;
      for (const ArgumentSlot& read : call.reads)
        if (read.value.valid()) cost += gone_cost(recorder_.maker_of(read.value));
      for (NodeId reader : readers_[v.index])
        for (const ResultSlot& result : recording().calls[reader.index].results) cost += gone_cost(result.value);
    }
    return {cost};
  }

  [[nodiscard]] double gone_cost(ValueId maker) const {
    const StorageIndex s = recorder_.storage_of(maker);
    if (s == no_storage || s >= storages_.size()) return 0;
    const bool gone = storages_.where(s) == Where::dropped || storages_.where(s) == Where::gone;
    const NodeId node = recording().values[maker.index].producer;
    return gone && node.valid() ? recording().calls[node.index].time.count : 0;
  }

  void evict(StorageIndex s) {
    policy_.erase(s);
    ++counters_.evicted;
    freeing_ = true;
    if (makeable(recorder_.newest_in(s))) storages_.drop(s);
    else storages_.move_out(s);
    freeing_ = false;
  }

  [[nodiscard]] Error too_small(Bytes bytes) const {
    const Bytes needed = cpu_memory().live() + bytes;
    return Error(Errc::budget_unreachable, (op_.empty() ? std::string("an allocation outside of any op") : op_) + " needs " +
                                               format_bytes(needed) + " (" + std::to_string(needed.count) +
                                               " bytes) at once: what it reads and makes, and what cannot be given up. The budget is " +
                                               format_bytes(limit_) + " (" + std::to_string(limit_.count) + " bytes)");
  }

  static constexpr double bytes_per_us = 1000;  // a guess at a disk: 1 GB/s

  Bytes limit_;
  OverBudget over_;
  Policy policy_;
  Choose choose_;
  std::shared_ptr<const PlannedStream> chosen_;
  const PlannedStream* stream_ = nullptr;  // while it is followed
  Recorder recorder_;
  StepStorages storages_;
  std::vector<Mark> marks_;                                           // by StorageIndex
  std::vector<char> makeable_;                                        // by value: of those that brought contents
  std::vector<std::vector<NodeId>> readers_;                          // by value, likewise
  std::vector<Instance> instances_;                                   // by the plan's storage instance
  std::unordered_map<std::uint32_t, std::uint32_t> own_of_;           // value -> the instance here that holds it
  std::unordered_set<StorageIndex> running_;                          // what the running op needs
  std::unordered_map<std::size_t, GeneratorState> generator_before_;  // by call
  std::unordered_map<std::uint32_t, NodeId> updated_at_;              // value from before the step -> the last call that wrote it
  GuideCounters counters_;
  NodeId next_{0};
  std::size_t compared_ = 0;
  std::uint64_t clock_ = 0;
  std::string op_;
  int depth_ = 0;
  std::vector<StorageIndex> watch_again_;
  bool running_again_ = false, online_ = false, freeing_ = false, went_over_ = false;
};

}  // namespace reprise
