#pragma once
// What a TrainStep knows of each signature (shapes, modes, …) that it has met; the one used longest
// ago is forgotten first.
//
//   KnownSteps steps;
//   KnownStep& a = steps.find_or_add("x [8, 3]", 16);      new: nothing captured yet
//   KnownStep& b = steps.find_or_add("x [8, 3]", 16);      the same one, now at the front

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <reprise/base/units.hpp>
#include <reprise/libtorch/record/allocation_trace.hpp>
#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/replay/arena_layout.hpp>
#include <reprise/libtorch/replay/program.hpp>
#include <reprise/plan/planner.hpp>

namespace reprise {

struct KnownStep {
  std::string signature{};
  std::unique_ptr<CapturedStep> captured{};
  std::unique_ptr<LibTorchProgram> program{};
  AllocationTrace trace{};
  std::unique_ptr<ArenaLayout> layout{};  ///< none where the program runs without an arena
  Plan plan{};
  Bytes room{};  ///< above the base: what the program was planned for
  /// what the budget was in bytes when this step last ran; 0 where that is not known yet
  Bytes budget{};
  /// what ops have taken beside the arena because they asked for other blocks than planned
  Bytes missed{};
  bool from_file = false;  ///< the plan was given, and is not to be improved
  bool unplannable = false;
  /// the model's memory that the capture holds for; empty where it holds for any
  std::string storages{};
  std::string refusal{};  ///< why it is not run from its graph
  int failures = 0;       ///< guards that failed one after the other
  std::int64_t calls = 0;
  bool stale = false;  ///< planned with times that have turned out wrong
  /// planned with little effort: times of warm ops are still to come
  bool quick = false;
  double packing = 1;                    ///< how much larger the arena was than the plan's peak
  std::int64_t last_equal = 1;           ///< the last call that was seen to be the captured step
  std::int64_t verifiable = 0;           ///< calls that could have been replayed
  int replays = 0;                       ///< of this plan
  int refinements = 0;                   ///< of its times
  std::vector<Microseconds> measured{};  ///< by node, of a replay; empty where none is due

  void forget_program() {
    program.reset();
    layout.reset();
  }
};

class KnownSteps {
 public:
  /// Keeps at most `most` of them; references to those that are kept stay good.
  KnownStep& find_or_add(std::string signature, std::size_t most) {
    const auto it = index_.find(signature);
    if (it != index_.end()) {
      steps_.splice(steps_.begin(), steps_, it->second);
      return steps_.front();
    }
    if (steps_.size() >= most && !steps_.empty()) {
      index_.erase(steps_.back().signature);
      steps_.pop_back();
    }
    steps_.push_front({.signature = std::move(signature)});
    index_.emplace(steps_.front().signature, steps_.begin());
    return steps_.front();
  }

 private:
  std::list<KnownStep> steps_;  // most recently used first
  std::unordered_map<std::string, std::list<KnownStep>::iterator> index_;
};

}  // namespace reprise
