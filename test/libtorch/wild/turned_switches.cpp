// A switch of LibTorch's is turned in the middle of a step, and turned back: what is recomputed
// runs as it did first.

#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::testing;
using torch::Tensor;

namespace {

/// Depends on each of the switches in some of its bits.
Tensor sensitive(const Tensor& h) {
  const Tensor tiny = h * 1e-39 * 1e38;
  return torch::gelu(h) + tiny + h.sum() * 1e-3 +
         torch::full({1}, 0.3).mul(torch::rand({1})).to(torch::kFloat);
}

/// `on` before the second of six layers, `off` after the fourth: backward runs with it off.
Program switching(const std::function<void()>& on, const std::function<void()>& off) {
  auto stack = std::make_shared<Stack>(6);
  auto loss = std::make_shared<Tensor>();
  const Tensor x = torch::randn({1024, 64});
  return {[=](int) {
            stack->layers->zero_grad();
            Tensor now = stack
                             ->forward(x,
                                       [&](const Tensor& h, int layer) {
                                         if (layer == 1) on();
                                         const Tensor made = sensitive(h);
                                         if (layer == 3) off();
                                         return made;
                                       })
                             .pow(2)
                             .mean();
            now.backward();
            const torch::NoGradGuard no_grad;
            for (const Tensor& p : stack->layers->parameters()) p.sub_(p.grad() * 0.01);
            *loss = now.detach();
          },
          [=] {
            std::vector<Tensor> all = all_of(*stack->layers);
            all.push_back(*loss);
            return all;
          }};
}

}  // namespace

TEST_CASE("the number of threads changes in the middle of a step", "[wild]") {
  const int before = at::get_num_threads();
  check_wild([&] {
    return switching([] { at::set_num_threads(3); }, [=] { at::set_num_threads(before); });
  });
  check_wild([&] {
    return switching([] { at::set_num_threads(1); }, [=] { at::set_num_threads(before); });
  });
}

TEST_CASE("the default dtype changes in the middle of a step", "[wild]") {
  check_wild([] {
    return switching([] { torch::set_default_dtype(caffe2::TypeMeta::Make<double>()); },
                     [] { torch::set_default_dtype(caffe2::TypeMeta::Make<float>()); });
  });
}

TEST_CASE("denormals are flushed in the middle of a step", "[wild]") {
  check_wild([] {
    return switching([] { at::globalContext().setFlushDenormal(true); },
                     [] { at::globalContext().setFlushDenormal(false); });
  });
}

TEST_CASE("oneDNN is switched off in the middle of a step", "[wild]") {
  check_wild([] {
    return switching([] { at::globalContext().setUserEnabledMkldnn(false); },
                     [] { at::globalContext().setUserEnabledMkldnn(true); });
  });
}

TEST_CASE("deterministic algorithms are asked for in the middle of a step", "[wild]") {
  check_wild([] {
    return switching([] { at::globalContext().setDeterministicAlgorithms(true, true); },
                     [] { at::globalContext().setDeterministicAlgorithms(false, false); });
  });
}

TEST_CASE("matrices are multiplied less precisely in the middle of a step", "[wild]") {
  check_wild([] {
    return switching([] { at::globalContext().setFloat32MatmulPrecision("medium"); },
                     [] { at::globalContext().setFloat32MatmulPrecision("highest"); });
  });
}
