#include <reprise/libtorch/device/cpu/heap_blocks.hpp>

#include <cstring>
#include <set>
#include <vector>

#include <reprise_test/catch.hpp>

using reprise::cpu::HeapBlocks;

TEST_CASE("blocks from the heap begin at multiples of 64 and are all their caller's") {
  const std::vector<std::size_t> sizes{1,
                                       48,
                                       64,
                                       65,
                                       1000,
                                       4096,
                                       HeapBlocks::largest - 1,
                                       HeapBlocks::largest,
                                       HeapBlocks::largest + 1,
                                       1 << 20};
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    blocks.push_back(HeapBlocks::take(sizes[i]));
    CHECK(reinterpret_cast<std::uintptr_t>(blocks[i]) % 64 == 0);
    std::memset(blocks[i], static_cast<int>(i), sizes[i]);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t k : {std::size_t{0}, sizes[i] / 2, sizes[i] - 1})
      CHECK(blocks[i][k] == static_cast<std::byte>(i));
    HeapBlocks::give(blocks[i], sizes[i]);
  }
}

#ifdef __GLIBC__
TEST_CASE("where a block from the heap has died, the next of its size lies") {
  constexpr std::size_t bytes = (32 << 10) + 64;
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(HeapBlocks::take(bytes));
  std::set<std::byte*> places;
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    places.insert(blocks[i]);
    HeapBlocks::give(blocks[i], bytes);
  }
  std::size_t again = 0;
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    blocks[i] = HeapBlocks::take(bytes);
    again += places.count(blocks[i]);
  }
  CHECK(again >= 31);  // a stranger of another size may have come between
  for (std::byte* block : blocks) HeapBlocks::give(block, bytes);
}
#endif
