#pragma once
// A StepRunner runs a captured step for a profiler any number of times, and restores all state:
// parameters, buffers, gradients, inputs and the generator, bit for bit. It does so even if a run
// is cancelled.
//
//   Profiler<SteadyTimer, AllocatorProbe>{}.run(captured)  ──make_runner──▶  StepRunner: save ─ run ─ run ─ run ─ restore

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/replay/isolated_ops.hpp>
#include <reprise/libtorch/replay/program.hpp>
#include <reprise/libtorch/residency/memory_limit.hpp>
#include <reprise/libtorch/torch/generator_state.hpp>
#include <reprise/profile/profiler.hpp>

namespace reprise::replaying {

class StepRunner {
 public:
  StepRunner(CapturedStep& step, const ProfileOptions& options)
      : step_(&step),
        options_(options),
        program_(step, own_order(step.graph())),
        generator_(GeneratorState::now()),
        base_(cpu_memory().live()) {
    if (step.bound().model.parameters.empty() && step.bound().inputs.empty())
      throw Error(Errc::bad_argument,
                  "this captured step does not know its model and inputs; capture() keeps them");
    for (const at::Tensor& tensor : program_.written(bindings())) save(tensor);
    if (options_.memory_limit > Bytes{0}) limit_in();
  }

  ~StepRunner() {
    limit_.reset();  // fetches everything
    for (Saved& saved : saved_)
      std::memcpy(saved.tensor.storage().mutable_data(), saved.bytes.data(), saved.bytes.size());
    generator_.restore();
  }
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;
  StepRunner(StepRunner&&) = delete;

  [[nodiscard]] const StepGraph& graph() const { return step_->graph(); }

  template <class Around>
  void run(Around around) {
    if (limit_) moving_.emplace_back(graph().node_count());
    if (limit_) bring_in_written();
    const RunOutcome outcome = program_.run(bindings(), Observer<Around>{*this, around});
    if (!outcome.completed)
      throw Error(Errc::capture_failed,
                  "the step could not be run again as it was captured: " + outcome.difference);
  }

  /// Adds the runner's own data to the profile: transfers, isolated times, the allocator's start
  /// bytes.
  void complete(Profile& profile) {
    profile.base = base_;
    profile.storages.resize(graph().storage_count());
    for (std::size_t i = 0; i < profile.storages.size(); ++i)
      profile.storages[i].bytes = graph().storage(StorageId{i}).bytes;
    if (limit_) take_out_moving(profile);
    if (limit_) take_measured_transfers(profile);
    if (options_.transfers || limit_) fill_in_transfers(profile);
    if (options_.mode != ProfileMode::in_situ) measure_isolated(profile);
  }

 private:
  struct Saved {
    at::Tensor tensor;
    std::vector<std::byte> bytes;
  };

  template <class Around>
  struct Observer {
    StepRunner& runner;
    Around& around;

    template <class Tensors>
    void before(std::size_t i, NodeId n, const Tensors& tensors) {
      if (runner.limit_) runner.limit_->begin_op(runner.graph().node(n).name, tensors());
      if (runner.limit_) runner.moving_before_ = runner.limit_->time_spent();
      around.before(i);
    }
    template <class Tensors>
    void after(std::size_t i, NodeId n, const Tensors& tensors) {
      around.after(i);
      if (!runner.limit_) return;
      runner.moving_.back()[i] = runner.limit_->time_spent() - runner.moving_before_;
      runner.note_results(n, tensors());
    }
  };

  [[nodiscard]] Bindings bindings() const {
    const BoundTensors& bound = step_->bound();
    return {bound.model.parameters, bound.model.buffers, bound.inputs, bound.leaves};
  }

  void save(const at::Tensor& tensor) {
    const auto* bytes = static_cast<const std::byte*>(tensor.storage().data());
    saved_.push_back({tensor, {bytes, bytes + tensor.storage().nbytes()}});
  }

  // A run with guards copies what it writes before its last guard, and may restore it through a
  // pointer.
  void bring_in_written() {
    std::vector<at::Tensor> tensors;
    for (const Saved& saved : saved_) tensors.push_back(saved.tensor);
    limit_->begin_op("the start of a run", tensors);
    limit_->end_op({});
  }

  void limit_in() {
    limit_ = std::make_unique<MemoryLimit>(options_.memory_limit, options_.spill_folder);
    const BoundTensors& bound = step_->bound();
    include_everything(*limit_, bound.model, {.tensors = bound.inputs}, bound.leaves);
    storage_of_.resize(graph().storage_count(), no_storage);
  }

  void note_results(NodeId n, const std::vector<at::Tensor>& results) {
    limit_->end_op(results);
    const auto outputs = graph().outputs(n);
    for (std::size_t k = 0; k < outputs.size(); ++k)
      storage_of_[graph().value(outputs[k]).storage.index] = limit_->find(results[k]);
  }

  // An op that reaches the limit waits while other storages are spilled: this is not the op's own
  // time.
  void take_out_moving(Profile& profile) const {
    const std::size_t first = moving_.size() - profile.runs;  // warm-up runs come first
    for (std::size_t i = 0; i < profile.nodes.size(); ++i) {
      NodeProfile& node = profile.nodes[i];
      for (std::size_t r = 0; r < node.samples.size(); ++r)
        node.samples[r] = {std::max(0.0, node.samples[r].count - moving_[first + r][i].count)};
      node.time = aggregate(node.samples, options_.aggregate);
    }
  }

  void take_measured_transfers(Profile& profile) const {
    profile.bandwidth_out = limit_->stats().bandwidth_out();
    profile.bandwidth_in = limit_->stats().bandwidth_in();
    for (std::size_t i = 0; i < storage_of_.size(); ++i) {
      if (storage_of_[i] == no_storage) continue;
      const TransferStats* stats = limit_->stats_of(storage_of_[i]);
      if (stats == nullptr || stats->brought_back == 0) continue;
      profile.storages[i].swap_out = {stats->time_out.count /
                                      static_cast<double>(stats->moved_out)};
      profile.storages[i].swap_in = {stats->time_in.count /
                                     static_cast<double>(stats->brought_back)};
      profile.storages[i].measured = true;
    }
  }

  // For storages that were not spilled: one block of each size is written and read back.
  void fill_in_transfers(Profile& profile) const {
    SpillFile file(options_.spill_folder);
    std::map<std::int64_t, std::pair<Microseconds, Microseconds>> known;
    TransferStats all;
    for (StorageProfile& storage : profile.storages) {
      if (storage.measured || storage.bytes == Bytes{0}) continue;
      auto it = known.find(storage.bytes.count);
      if (it == known.end())
        it = known.emplace(storage.bytes.count, measure_transfer(file, storage.bytes, all)).first;
      storage.swap_out = it->second.first;
      storage.swap_in = it->second.second;
      storage.measured = storage.bytes <= largest_block;
    }
    if (profile.bandwidth_out == 0) profile.bandwidth_out = all.bandwidth_out();
    if (profile.bandwidth_in == 0) profile.bandwidth_in = all.bandwidth_in();
  }

  /// Larger storages would take seconds: their time is scaled up from this size.
  static constexpr Bytes largest_block{std::int64_t{64} << 20};

  static std::pair<Microseconds, Microseconds> measure_transfer(SpillFile& file, Bytes bytes,
                                                                TransferStats& all) {
    const Bytes block = bytes < largest_block ? bytes : largest_block;
    std::vector<std::byte> data(static_cast<std::size_t>(block.count), std::byte{1});
    const auto start = std::chrono::steady_clock::now();
    const SpillFile::Place place = file.write(data.data(), data.size());
    const auto written = std::chrono::steady_clock::now();
    file.read(place, data.data());
    const auto end = std::chrono::steady_clock::now();
    file.release(place);
    const Microseconds out{std::chrono::duration<double, std::micro>(written - start).count()};
    const Microseconds in{std::chrono::duration<double, std::micro>(end - written).count()};
    all.bytes_out += block;
    all.bytes_in += block;
    all.time_out += out;
    all.time_in += in;
    const double scale = static_cast<double>(bytes.count) / static_cast<double>(block.count);
    return {{out.count * scale}, {in.count * scale}};
  }

  void measure_isolated(Profile& profile) {
    const IsolatedTimes isolated = time_isolated_ops(step_->recording(), options_);
    for (const Microseconds time : isolated.time) profile.isolated_time += time;
    profile.isolated_ops = isolated.distinct;
    profile.isolated_failed = isolated.failed;
    if (options_.mode != ProfileMode::isolated) return;
    for (std::size_t i = 0; i < profile.nodes.size(); ++i) {
      profile.nodes[i].samples = isolated.samples[i];
      profile.nodes[i].time = isolated.time[i];
    }
    profile.runs = options_.runs;
  }

  CapturedStep* step_;
  ProfileOptions options_;
  LibTorchProgram program_;
  GeneratorState generator_;
  Bytes base_;
  std::vector<Saved> saved_;
  std::unique_ptr<MemoryLimit> limit_;
  std::vector<StorageIndex> storage_of_;  // by StorageId: the index in the limit's table
  // by run and node: time of spilling other storages during the op
  std::vector<std::vector<Microseconds>> moving_;
  Microseconds moving_before_{};
};

}  // namespace reprise::replaying

namespace reprise::recording {

/// Found by Profiler::run through the step's type.
[[nodiscard]] inline replaying::StepRunner make_runner(CapturedStep& step,
                                                       const profiling::ProfileOptions& options) {
  return replaying::StepRunner(step, options);
}

}  // namespace reprise::recording

namespace reprise {
using recording::make_runner;
}  // namespace reprise
