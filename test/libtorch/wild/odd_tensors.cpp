// Tensors that are not plain, that are empty, or that show a small part of what they hold.

#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::testing;
using torch::Tensor;

namespace {

/// A ring of 128 nodes with a few chords.
Tensor edges() {
  const Tensor node = torch::arange(128);
  const Tensor from = torch::cat({node, node, node.narrow(0, 0, 40)});
  const Tensor to = torch::cat({(node + 1).remainder(128), (node + 127).remainder(128),
                                (node.narrow(0, 0, 40) * 3).remainder(128)});
  return torch::stack({from, to});
}

}  // namespace

TEST_CASE("a sparse adjacency matrix from before the step", "[wild]") {
  check_wild([] {
    const Tensor matrix =
        torch::sparse_coo_tensor(edges(), torch::full({296}, 0.25), {128, 128}).coalesce();
    return stack_with([=](const Tensor& h, int) { return torch::gelu(torch::mm(matrix, h)); });
  });
}

TEST_CASE("a sparse adjacency matrix is made in every step", "[wild]") {
  check_wild([] {
    const Tensor where = edges();
    return stack_with([=](const Tensor& h, int) {
      const Tensor weights = torch::sigmoid(h.mean(1)).index_select(0, where[0]);
      const Tensor matrix = torch::sparse_coo_tensor(where, weights, {128, 128}).coalesce();
      return torch::gelu(torch::mm(matrix, torch::tanh(h)));
    });
  });
}

TEST_CASE("a compressed sparse matrix is made in every step", "[wild]") {
  check_wild([] {
    const Tensor dense = torch::zeros({128, 128});
    dense.index_put_({edges()[0], edges()[1]}, torch::full({1}, 0.25));
    return stack_with([=](const Tensor& h, int i) {
      const torch::NoGradGuard no_grad;
      const Tensor matrix = (dense * (1 + i)).to_sparse_csr();
      return torch::gelu(torch::mm(matrix, h.detach()));
    });
  });
}

TEST_CASE("a loss of four bytes in a large storage is read by the host", "[wild]") {
  check_wild([] {
    const Tensor target = torch::randn({128, 64});
    return stack_with([=](const Tensor& h, int) {
      const Tensor loss =
          torch::mse_loss(h, target) + torch::smooth_l1_loss(torch::gelu(h), target);
      const double seen = loss.item<double>();
      return loss * (seen > 0 ? 0.5 : 2);
    });
  });
}

TEST_CASE("an empty tensor from before the step is concatenated, as a cache does", "[wild]") {
  check_wild([] {
    auto cache = std::make_shared<Tensor>(torch::empty({0}));
    return stack_with([=](const Tensor& h, int) {
      Tensor keys = *cache;
      for (int i = 0; i < 3; ++i) keys = torch::cat({keys, torch::gelu(h * (1 + i))}, 0);
      return torch::tanh(keys);
    });
  });
}

TEST_CASE("an empty tensor that dies in the step is concatenated", "[wild]") {
  check_wild([] {
    auto cache = std::make_shared<Tensor>();
    return stack_with([=](const Tensor& h, int) {
      if (!cache->defined()) *cache = torch::empty({0});
      Tensor keys = torch::cat({*cache, torch::gelu(h)}, 0);
      *cache = Tensor();
      keys = torch::cat({torch::empty({0, 64}), keys, torch::tanh(keys)}, 0);
      return torch::tanh(keys);
    });
  });
}

TEST_CASE("half precision, integers and booleans among the others", "[wild]") {
  check_wild([] {
    return stack_with([](const Tensor& h, int) {
      const Tensor half = h.to(torch::kBFloat16);
      const Tensor rank = h.argsort(std::int64_t{1}), mask = h > 0.1;
      return torch::gelu(half * half).to(torch::kFloat) + torch::gather(h, 1, rank) * mask;
    });
  });
}
