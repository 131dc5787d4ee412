#include <reprise/plan/buffers_of.hpp>

#include <reprise_test/toy.hpp>

TEST_CASE("a schedule's buffers are what it makes, each time that it makes it") {
  const auto buffers = buffers_of(resolve(toy_graph(), toy_schedule()));
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> found;
  for (const Buffer& b : buffers) found.emplace_back(b.lower, b.upper, b.size.count);
  // h, wide, the loss (an output: to the end), h again, g
  CHECK(found == std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{
                     {0, 3, 8192}, {3, 5, 16384}, {4, 10, 4}, {5, 9, 8192}, {8, 10, 4096}});
  CHECK(assign_offsets(buffers).height == 16388_B);
}
