// Lists among the arguments of ops.

#include <torch/torch.h>

#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/interned_lists.hpp>

using namespace reprise::tensors;
using torch::Tensor;

TEST_CASE("equal lists of numbers are one list, the one that came first") {
  const c10::IValue first = std::vector<std::int64_t>{3, 1, 4}, same = first.deepcopy(),
                    other = std::vector<std::int64_t>{3, 1, 5},
                    longer = std::vector<std::int64_t>{3, 1, 4, 1},
                    none = std::vector<std::int64_t>{};
  REQUIRE_FALSE(same.is(first));
  CHECK(interned_list(first).is(first));
  CHECK(interned_list(same).is(first));
  CHECK(interned_list(other).toIntVector() == std::vector<std::int64_t>{3, 1, 5});
  CHECK(interned_list(longer).toIntVector() == std::vector<std::int64_t>{3, 1, 4, 1});
  CHECK(interned_list(none).toIntVector().empty());
}

TEST_CASE("a list whose place another one has taken is kept anew") {
  for (std::int64_t i = 0; i < 2000; ++i) {  // more than there are places
    const c10::IValue list = std::vector<std::int64_t>{i, i + 1};
    CHECK(interned_list(list).toIntVector() == std::vector<std::int64_t>{i, i + 1});
  }
}

TEST_CASE("a list's tensors are left out, and its length stays") {
  const c10::IValue tensors = std::vector<Tensor>{torch::ones({2}), torch::ones({3})};
  const c10::IValue blank = blank_list(tensors);
  CHECK(holds_tensors(tensors));
  REQUIRE(blank.isTensorList());
  REQUIRE(blank.toTensorList().size() == 2);
  CHECK_FALSE(blank.toTensorList().get(0).defined());

  c10::List<std::optional<Tensor>> indices;
  indices.push_back(std::nullopt);
  CHECK_FALSE(holds_tensors(indices));
  indices.push_back(torch::ones({2}));
  CHECK(holds_tensors(indices));
  const c10::IValue blank_indices = blank_list(indices);
  CHECK_FALSE(blank_indices.isTensorList());
  REQUIRE(blank_indices.toListRef().size() == 2);
  CHECK(blank_indices.toListRef()[1].isNone());
}
