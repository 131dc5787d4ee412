// What a function's results depend on beside its arguments, for the time of a block.

#include <torch/torch.h>

#include <ATen/CPUGeneratorImpl.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/ambient_state.hpp>

using namespace reprise::tensors;
using torch::Tensor;

TEST_CASE("inside of an ambient scope everything is as it was then, and behind it as before") {
  torch::manual_seed(5);
  AmbientState then = AmbientState::now();
  const Tensor first = torch::rand({8});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::GradMode::set_enabled(false);
  const AutocastState autocast = AutocastState::now();
  const GeneratorState generator = GeneratorState::now();
  {
    const AmbientScope as_then(then);
    CHECK(torch::rand({8}).equal(first));
    CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    CHECK(at::GradMode::is_enabled());
  }
  CHECK(GeneratorState::now() == generator);
  CHECK(at::autocast::is_autocast_enabled(at::kCPU));
  CHECK(AutocastState::now().dtype == autocast.dtype);
  CHECK_FALSE(at::GradMode::is_enabled());
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::GradMode::set_enabled(true);
}

TEST_CASE("a generator of the user's own is put back too, and stays where it was") {
  at::Generator own = at::detail::createCPUGenerator(7);
  AmbientState then = AmbientState::now();
  then.others.emplace_back(own);
  const Tensor first = torch::rand({4}, own), second = torch::rand({4}, own);
  {
    const AmbientScope as_then(then);
    CHECK(torch::rand({4}, own).equal(first));
  }
  // what was drawn inside of the block was not drawn
  const Tensor third = torch::rand({4}, own);
  CHECK_FALSE(third.equal(first));
  CHECK_FALSE(third.equal(second));
}
