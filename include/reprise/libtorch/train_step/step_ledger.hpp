#pragma once
// What the parts of one TrainStep share: what it was asked for, what it has counted, and what the
// running call has measured so far.
//
//   StepLedger ledger{options};
//   ledger.last = {};                                 a call begins
//   ++ledger.counters.replays;
//   ledger.notice("captured anew: …");                to the user's own sink, and to the log

#include <string>
#include <utility>

#include <reprise/base/log.hpp>
#include <reprise/libtorch/options/step_options.hpp>

namespace reprise::training {

struct StepLedger {
  TrainStepOptions options;
  Log log;
  TrainStepCounters counters{};
  TrainStepReport last{};
  /// arenas of other steps: their unused bytes when the call began
  Bytes others{};
  /// the running call has its results already; what fails from here on fails afterwards
  bool step_completed = false;

  explicit StepLedger(TrainStepOptions asked)
      : options(std::move(asked)),
        log(options.run.name, options.run.log_level, options.run.on_log) {}

  /// What an error adds that comes after the step's own work.
  [[nodiscard]] std::string afterwards() const {
    return step_completed ? ". The step itself was carried out: its gradients may be used" : "";
  }

  void notice(const std::string& text) const {
    if (options.run.on_notice) options.run.on_notice(text);
    log.notice(text);
  }
};

}  // namespace reprise::training
