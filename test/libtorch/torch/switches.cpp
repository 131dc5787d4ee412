// LibTorch's switches, for the time of a block.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/switches.hpp>

using namespace reprise::tensors;

TEST_CASE("inside of a switch scope LibTorch's switches are what they were then") {
  const Switches then = Switches::now();
  at::set_num_threads(then.threads + 1);
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  at::globalContext().setDeterministicAlgorithms(!then.deterministic, then.warn_only);
  at::globalContext().setUserEnabledMkldnn(!then.mkldnn);
  set_denormal_flags(0x8040u);
  const Switches changed = Switches::now();
  CHECK_FALSE(changed == then);
  {
    const SwitchScope as_then(then);
    CHECK(Switches::now() == then);
    CHECK(at::get_num_threads() == then.threads);
    CHECK(torch::ones({1}).scalar_type() == then.default_dtype);
  }
  CHECK(Switches::now() == changed);
  then.set(changed);
  CHECK(Switches::now() == then);
}

TEST_CASE("equal switches are one object, which stays") {
  Switches one = Switches::now();
  const Switches* const first = Switches::interned(one);
  CHECK(Switches::interned(Switches::now()) == first);
  one.threads += 7;
  CHECK(Switches::interned(one) != first);
  CHECK(Switches::interned(one)->threads == one.threads);
  CHECK(Switches::interned(Switches::now()) == first);
}
