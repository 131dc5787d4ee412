#pragma once
// A StepContext has what the parts of one TrainStep share: its options, its counters, and the
// report of the running call.
//
//   StepContext context{options};
//   context.last = {};                                 a call begins
//   ++context.counters.replays;
//   context.notice("captured anew: …");                to the user's own sink, and to the log

#include <string>
#include <utility>

#include <reprise/base/log.hpp>
#include <reprise/libtorch/options/step_options.hpp>

namespace reprise::training {

struct StepContext {
  TrainStepOptions options;
  Log log;
  TrainStepCounters counters{};
  TrainStepReport last{};
  /// unused bytes of other steps' arenas when the call began
  Bytes others{};
  /// the running call has its results already: a later failure does not change them
  bool step_completed = false;

  explicit StepContext(TrainStepOptions asked)
      : options(std::move(asked)),
        log(options.run.name, options.run.log_level, options.run.on_log) {}

  /// Text for an error that comes after the step's own work.
  [[nodiscard]] std::string afterwards() const {
    return step_completed ? ". The step itself was carried out: its gradients may be used" : "";
  }

  void notice(const std::string& text) const {
    if (options.run.on_notice) options.run.on_notice(text);
    log.notice(text);
  }
};

}  // namespace reprise::training
