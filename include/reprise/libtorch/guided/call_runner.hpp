#pragma once
// A CallRunner recomputes a recorded call. A random op draws the same numbers as in its first run,
// and the generator's state is the same before and after.
//
//   runner.note_generator(node);        a dropout is about to run
//   runner.run(call, node, tensors);    recomputes it: the same mask
//
// With verify(), every recomputation is compared with the call's first run (content_checks.hpp).

#include <chrono>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <reprise/base/clock.hpp>
#include <reprise/libtorch/guided/content_checks.hpp>
#include <reprise/libtorch/guided/lineage.hpp>
#include <reprise/libtorch/guided/step_counters.hpp>
#include <reprise/libtorch/record/call_again.hpp>
#include <reprise/libtorch/record/recorder.hpp>
#include <reprise/libtorch/torch/generator_state.hpp>

namespace reprise::guided {

class CallRunner {
 public:
  CallRunner(Recorder& recorder, const Residency& residency, const Lineage& lineage,
             GuidedStepCounters& counters)
      : recorder_(recorder),
        tables_(recorder.tables()),
        residency_(residency),
        lineage_(lineage),
        counters_(counters) {}

  /// Compares operands and results of every recomputation with the first run. Throws at the first
  /// difference.
  void verify() { checks_.emplace(); }

  /// Whether a kernel of a recomputation is running.
  [[nodiscard]] bool is_running() const { return running_; }
  /// The kernel of a recomputation took the pointer, not user code: the hook is set again
  /// afterwards.
  void watch_afterwards(StorageIndex s) { watch_again_.push_back(s); }
  /// While an Interrupted is in scope, every pointer access counts as user code's.
  class Interrupted {
   public:
    explicit Interrupted(CallRunner& runner)
        : runner_(runner), before_(std::exchange(runner.running_, false)) {}
    ~Interrupted() { runner_.running_ = before_; }
    Interrupted(const Interrupted&) = delete;
    Interrupted& operator=(const Interrupted&) = delete;

   private:
    CallRunner& runner_;
    bool before_;
  };

  /// The random op is about to draw from here.
  void note_generator(NodeId node) {
    generator_before_.insert_or_assign(node.index, GeneratorState::now());
  }

  /// The call is about to run, and all its operands are resident.
  void note_operands(const Call& call) {
    if (!checks_ || call.facts->views_only) return;
    for (std::size_t k = 0; k < call.reads.size(); ++k) {
      const ValueId read = call.reads[k].value;
      const auto storage = memory_to_check(read);
      if (!storage || is_running_stat(call, call.reads[k])) continue;
      if (!tables_.records()[tables_.storage_of(read)].use.user_may_write)
        checks_->check_result(recording(), tables_.version_of(read),
                              *storage.unsafeGetStorageImpl(), false);
      checks_->note_operand(call, tables_.next_node(), k, recording(),
                            *storage.unsafeGetStorageImpl());
    }
  }
  void note_result(ValueId value) {
    if (!checks_ || recording().values[value.index].alias_of.valid()) return;
    if (const auto storage = memory_to_check(value))
      checks_->note_result(recording(), value, *storage.unsafeGetStorageImpl());
  }

  std::vector<c10::IValue> run(const Call& call, NodeId node, std::span<const at::Tensor> tensors) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<c10::IValue> results;
    {
      Running running(*this, call, node);
      check_operands(node, tensors);
      results = call_again(call, tensors);
      check_results(call, results, tensors);
      running.end();
    }
    counters_.extra_time += time_since(start);
    ++counters_.recomputed;
    return results;
  }

 private:
  class Running {
   public:
    Running(CallRunner& runner, const Call& call, NodeId node) : runner_(runner) {
      if (call.facts->random) {
        generator_now_ = GeneratorState::now();
        runner.generator_before_.at(node.index).restore();
      }
      was_running_ = std::exchange(runner_.running_, true);
    }
    ~Running() {
      try {
        end();
      } catch (...) {  // the call has thrown already: its error is the one to tell
      }
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

    /// The call is done. Throws where something cannot be watched again.
    void end() {
      if (std::exchange(ended_, true)) return;
      runner_.running_ = was_running_;
      if (generator_now_) generator_now_->restore();
      for (StorageIndex s : std::exchange(runner_.watch_again_, {}))
        runner_.recorder_.user_access().watch(s);
    }

   private:
    CallRunner& runner_;
    std::optional<GeneratorState> generator_now_;
    bool ended_ = false;
    bool was_running_ = false;  // the kernel of another recomputation used a pointer
  };

  [[nodiscard]] const Recording& recording() const { return tables_.recording(); }

  // Null if there is nothing to compare: not in memory, never written, or perhaps still being
  // written.
  [[nodiscard]] c10::Storage memory_to_check(ValueId v) const {
    const StorageIndex s = tables_.storage_of(v);
    if (s == no_storage) return {};
    const ValueId version = tables_.version_of(v);
    const NodeId producer = recording().values[version.index].producer;
    const Call* call = producer.valid() ? &recording().calls[producer.index] : nullptr;
    const bool is_filled = call == nullptr || call->kind != CallKind::op || !may_linger(*call);
    return is_filled && !lineage_.uninitialized(version) ? residency_.memory_of(s) : c10::Storage{};
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

  Recorder& recorder_;
  const RecordingTables& tables_;
  const Residency& residency_;
  const Lineage& lineage_;
  GuidedStepCounters& counters_;
  std::unordered_map<std::size_t, GeneratorState> generator_before_;  // by call
  std::optional<ContentChecks> checks_;
  std::vector<StorageIndex> watch_again_;
  bool running_ = false;
};

}  // namespace reprise::guided
