// The tensors inside of a value, in a fixed order.

#include <torch/torch.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/tensor_slots.hpp>

using namespace reprise::tensors;
using torch::Tensor;

namespace {

Tensor number(double x) { return torch::tensor(x); }

template <class T>
std::vector<double> numbers_in(T&& value) {
  std::vector<double> found;
  for_each_tensor(value, [&](const Tensor& t) { found.push_back(t.item<double>()); });
  return found;
}
std::vector<double> numbers_of(const c10::IValue& value) {
  std::vector<double> found;
  for_each_tensor_of(value, [&](const Tensor& t) { found.push_back(t.item<double>()); });
  return found;
}

}  // namespace

TEST_CASE("tensors are found in tuples, lists, arrays, pairs and optionals, in order") {
  std::tuple value{number(1),
                   std::optional{number(2)},
                   3,
                   std::vector{number(4), Tensor(), number(5)},
                   std::pair{number(6), std::string("7")},
                   std::optional<Tensor>{},
                   std::array{number(8)}};
  CHECK(numbers_in(value) == std::vector<double>{1, 2, 4, 5, 6, 8});
  CHECK(numbers_in(3).empty());
  for_each_tensor(value, [](Tensor& t) { t = t * 10; });
  CHECK(std::get<0>(value).item<double>() == 10);
  CHECK(std::get<3>(value)[2].item<double>() == 50);
}

TEST_CASE("and in what an operator takes and returns") {
  CHECK(numbers_of(number(1)) == std::vector<double>{1});
  CHECK(numbers_of(Tensor()).empty());
  CHECK(numbers_of(std::vector<Tensor>{number(1), Tensor(), number(2)}) ==
        std::vector<double>{1, 2});
  CHECK(numbers_of(std::vector<std::int64_t>{1, 2}).empty());
  CHECK(numbers_of(3.0).empty());
}
