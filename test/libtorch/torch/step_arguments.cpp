// The arguments and results of a step.

#include <torch/torch.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/step_arguments.hpp>

using namespace reprise::tensors;
using torch::Tensor;

namespace {

template <class... Arguments>
std::string plain(const Arguments&... arguments) {
  return arguments_of(arguments...).plain;
}

}  // namespace

TEST_CASE("tensors are taken out in order, and plain values become bytes") {
  const Tensor x = torch::ones({1}), y = torch::ones({2}), z = torch::ones({3});
  const StepArguments all = arguments_of(x, std::vector{y, z}, 3, std::optional{x}, Tensor());
  REQUIRE(all.tensors.size() == 4);
  for (const auto& [index, tensor] : {std::pair{0, x}, {1, y}, {2, z}, {3, x}})
    CHECK(all.tensors[static_cast<std::size_t>(index)].is_same(tensor));
  CHECK(plain(x, 3) == plain(y, 3));
}

TEST_CASE("another value, or another arrangement, gives other bytes") {
  const Tensor x = torch::ones({1});
  CHECK(plain(3) == plain(3));
  CHECK(plain(3) != plain(4));
  CHECK(plain(3) != plain(std::int64_t{3}));
  CHECK(plain(3.0) != plain(3.5));
  CHECK(plain(1.0f) != plain(1.0));
  CHECK(plain(true) != plain(false));
  CHECK(plain("ab", "c") != plain("a", "bc"));
  CHECK(plain(std::string("ab"), std::string("c")) != plain(std::string("a"), std::string("bc")));
  CHECK(plain(std::vector{x}, x) != plain(x, std::vector{x}));
  CHECK(plain(std::vector{x, x}) != plain(x, x));
  CHECK(plain(Tensor()) != plain(x));
  CHECK(plain(std::optional<int>{}) != plain(std::optional{0}));
}

TEST_CASE("results are the loss first, and then what stands behind it") {
  const Tensor loss = torch::ones({}), logits = torch::ones({2});
  const auto is = [&](const std::vector<Tensor>& results, std::size_t count) {
    return results.size() == count && results[0].is_same(loss) &&
           (count == 1 || results[1].is_same(logits));
  };
  CHECK(is(results_of(loss), 1));
  CHECK(is(results_of(std::tuple{loss, logits}), 2));
  CHECK(is(results_of(std::pair{loss, logits}), 2));
  CHECK(is(results_of(std::vector{loss, logits}), 2));
}
