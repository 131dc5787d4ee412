// Writes through views that overlap, or that name an element several times.

#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::testing;
using torch::Tensor;

TEST_CASE("writes through as_strided views that overlap", "[wild]") {
  check_wild([] {
    return stack_with([](const Tensor& h, int) {
      Tensor t = (h * 0.5).contiguous();
      const Tensor flat = t.view({-1});
      flat.as_strided({1000, 8}, {4, 1}).select(0, 3).mul_(0.5);
      flat.as_strided({64, 3}, {2, 2}, 5).select(1, 1).add_(0.25);
      return t * torch::tanh(t);
    });
  });
}

TEST_CASE("unfold reads what a narrower view has written", "[wild]") {
  check_wild([] {
    return stack_with([](const Tensor& h, int i) {
      Tensor t = torch::sigmoid(h);
      Tensor u = t * 2;
      const Tensor windows = u.view({-1}).unfold(0, 16, 5);
      u.narrow(0, i, 7).mul_(0.125);
      return (windows * windows).mean() + torch::tanh(u);
    });
  });
}

TEST_CASE("index_put_ and scatter_add_ name elements several times", "[wild]") {
  check_wild([] {
    const Tensor rows = torch::tensor({3, 1, 3, 0, 1, 3}), where = torch::randint(128, {32, 64});
    return stack_with([=](const Tensor& h, int) {
      Tensor t = h.clone();
      t.index_put_({rows}, h.narrow(0, 0, 6), /*accumulate=*/true);
      t = torch::tanh(t);
      Tensor u = t.clone();
      u.scatter_add_(0, where, t.narrow(0, 0, 32));
      u.index_add_(0, rows, t.narrow(0, 10, 6));
      return torch::gelu(u);
    });
  });
}

TEST_CASE("a number is put at an index, a slice is zeroed, a tensor is made of numbers", "[wild]") {
  check_wild([] {
    const Tensor row = torch::tensor({2});
    return stack_with([=](const Tensor& h, int i) {
      Tensor t = torch::gelu(h);
      Tensor u = t * 3;
      u.index_put_({row}, 0.5);
      u.slice(0, 4, 20).zero_();
      const Tensor few = torch::tensor({0.25f * static_cast<float>(i), 2.0f, 3.0f});
      const Tensor many = torch::tensor(std::vector<float>(4096, 0.5f));
      return torch::tanh(u) * few[1] + few.sum() + many.mean();
    });
  });
}

TEST_CASE("columns of an expanded tensor are written one after the other", "[wild]") {
  check_wild([] {
    return stack_with([](const Tensor& h, int) {
      const Tensor wide = torch::gelu(h).unsqueeze(0).expand({4, 128, 64});
      Tensor sum = torch::zeros({128, 64});
      for (int k = 0; k < 4; ++k) sum.select(1, k).copy_(wide[k].sum(1));
      return sum + wide.sum(0);
    });
  });
}
