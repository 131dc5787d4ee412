// A tensor grows or shrinks in the middle of a step: by resize_, or by an out= form that finds it
// too small.

#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::testing;
using torch::Tensor;

TEST_CASE("a tensor that is kept over steps grows by resize_", "[wild]") {
  check_wild([] {
    const Tensor log = torch::zeros({16, 64});
    return stack_with(
        [log](const Tensor& h, int i) {
          const torch::NoGradGuard no_grad;
          Tensor grown = log;
          grown.resize_({16 * (i + 2), 64});
          grown.copy_(h.narrow(0, 0, 1).expand({16 * (i + 2), 64}));
          return grown * 2;
        },
        {log});
  });
}

TEST_CASE("a tensor that is made in the step grows by resize_", "[wild]") {
  check_wild([] {
    return stack_with([](const Tensor& h, int i) {
      const torch::NoGradGuard no_grad;
      Tensor t = h.narrow(0, 0, 8).clone();
      Tensor before = t * 3;
      t.resize_({64 + 8 * i, 64});
      t.narrow(0, 8, 56 + 8 * i).fill_(0.5);
      return t.mul(2).sum() + before.sum();
    });
  });
}

TEST_CASE("a tensor that is made in the step shrinks by resize_ and grows again", "[wild]") {
  check_wild([] {
    return stack_with([](const Tensor& h, int) {
      const torch::NoGradGuard no_grad;
      Tensor t = h.clone();
      t.resize_({8, 64});
      Tensor small = t * 3;
      t.resize_({256, 64});
      t.narrow(0, 8, 248).fill_(0.25);
      return small.sum() + t.sum();
    });
  });
}

TEST_CASE("out= forms make their results larger", "[wild]") {
  check_wild([] {
    const Tensor kept = torch::zeros({2, 2});
    return stack_with(
        [kept](const Tensor& h, int i) {
          const torch::NoGradGuard no_grad;
          Tensor product = torch::empty({0}), sum = torch::zeros({4}), grown = kept;
          torch::mm_out(product, h.t(), h);
          torch::add_out(sum, product, product.t());
          grown.resize_({0});
          torch::mul_out(grown, sum.narrow(0, 0, 8 + 8 * i), sum.narrow(0, 0, 8 + 8 * i));
          Tensor out = torch::empty({0});
          torch::cat_out(out, {sum, grown});
          return out.tanh();
        },
        {kept});
  });
}
