// The state of the default generator, put back.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/torch/generator_state.hpp>

using namespace reprise::tensors;

TEST_CASE("a generator that was put back draws the same numbers again") {
  const int drawn_before = GENERATE(0, 1);  // normal numbers come in pairs: the second one waits
  torch::manual_seed(3);
  for (int i = 0; i < drawn_before; ++i) static_cast<void>(torch::randn({1}, torch::kDouble));
  const GeneratorState then = GeneratorState::now();
  CHECK(then.next_double.has_value() == (drawn_before == 1));
  const torch::Tensor first = torch::randn({1}, torch::kDouble), more = torch::rand({40});
  CHECK_FALSE(GeneratorState::now() == then);
  then.restore();
  CHECK(GeneratorState::now() == then);
  CHECK(torch::randn({1}, torch::kDouble).equal(first));
  CHECK(torch::rand({40}).equal(more));
}

TEST_CASE("taking the generator's state allocates nothing that counts") {
  const reprise::Bytes before = reprise::device_memory().live();
  const GeneratorState then = GeneratorState::now();
  CHECK(reprise::device_memory().live() == before);
  then.restore();
  CHECK(reprise::device_memory().live() == before);
}
