#pragma once
// What the parts of one TrainStep share: what it was asked for, what it has counted, and what the
// running call has measured so far.
//
//   StepLedger ledger{options};
//   ledger.last = {.base = cpu_memory().live()};      a call begins
//   ++ledger.counters.replays;
//   ledger.notice("captured anew: …");                to the user's own sink, and to the log

#include <string>
#include <utility>

#include <reprise/base/log.hpp>
#include <reprise/libtorch/options/step_options.hpp>

namespace reprise {

struct StepLedger {
  TrainStepOptions options;
  Log log;
  StepCounters counters{};
  StepMeasurement last{};
  /// arenas of other steps: what they held beyond what is alive in them when the call began
  Bytes others{};
  /// the running call has its results already; what fails from here on fails afterwards
  bool carried_out = false;

  explicit StepLedger(TrainStepOptions asked)
      : options(std::move(asked)), log(options.name, options.log_level, options.on_log) {}

  /// What an error adds that comes after the step's own work.
  [[nodiscard]] std::string afterwards() const {
    return carried_out ? ". The step itself was carried out: its gradients may be used" : "";
  }

  void notice(const std::string& text) const {
    if (options.on_notice) options.on_notice(text);
    log.notice(text);
  }
};

}  // namespace reprise
