// What the parts of a TrainStep note together.

#include <torch/torch.h>

#include <string>
#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/train_step/step_ledger.hpp>

using namespace reprise;
using namespace reprise::training;

TEST_CASE("a notice goes to the user's function and to the log") {
  std::vector<std::string> told, logged;
  TrainStepOptions options;
  options.run.log_level = LogLevel::notice;
  options.run.on_notice = [&](const std::string& text) { told.push_back(text); };
  options.run.on_log = [&](LogLevel, const std::string& text) { logged.push_back(text); };
  const StepLedger ledger(options);
  ledger.notice("now it is eager");
  CHECK(told == std::vector<std::string>{"now it is eager"});
  CHECK(logged == std::vector<std::string>{"now it is eager"});
}

TEST_CASE("what fails after a step's own work says that the step was carried out") {
  StepLedger ledger{TrainStepOptions{}};
  CHECK(ledger.afterwards().empty());
  ledger.step_completed = true;
  CHECK(ledger.afterwards() == ". The step itself was carried out: its gradients may be used");
}
