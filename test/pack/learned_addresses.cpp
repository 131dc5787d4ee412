#include <reprise/pack/learned_addresses.hpp>

#include <array>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::packing;

namespace {

/// Blocks are numbers here, and each has an address of its own.
struct Steps {
  LearnedAddresses addresses{};
  std::vector<std::byte> places = std::vector<std::byte>(100'000);
  std::size_t used = 0;

  struct Born {
    const void* address;
    std::optional<std::size_t> offset;
  };
  Born ask(std::size_t bytes) {
    const Born born{&places[used++], addresses.next(bytes)};
    addresses.born(born.address, bytes);
    return born;
  }
};

/// The step of the header: returns where a, b, c and d were to lie.
struct Example : Steps {
  const void* outlives = nullptr;
  bool gone_in_time = true;

  std::array<std::optional<std::size_t>, 4> step(bool& changed) {
    addresses.begin();
    if (outlives != nullptr && gone_in_time) addresses.died(std::exchange(outlives, nullptr));
    const Born a = ask(40), b = ask(25);
    addresses.died(a.address);
    const Born c = ask(30);
    if (outlives != nullptr) addresses.died(std::exchange(outlives, nullptr));
    addresses.died(b.address);
    const Born d = ask(20);
    addresses.died(c.address);
    outlives = d.address;
    changed = addresses.end();
    return {a.offset, b.offset, c.offset, d.offset};
  }
};

}  // namespace

TEST_CASE("blocks that come twice in the same order are laid out, in as much as is alive at most") {
  Example example;
  bool changed = true;
  for (int i = 0; i < 2; ++i) {
    for (const auto& offset : example.step(changed)) CHECK_FALSE(offset);
    CHECK(changed == (i == 1));
  }
  CHECK(example.addresses.height() == 65);
  const auto [a, b, c, d] = example.step(changed);
  CHECK_FALSE(changed);
  REQUIRE((a && b && c && d));
  const auto apart = [](std::size_t x, std::size_t x_bytes, std::size_t y, std::size_t y_bytes) {
    return x + x_bytes <= y || y + y_bytes <= x;
  };
  CHECK(apart(*a, 40, *b, 25));
  CHECK(apart(*c, 30, *b, 25));
  CHECK(apart(*d, 20, *c, 30));
  CHECK(std::max({*a + 40, *b + 25, *c + 30, *d + 20}) == 65);
  CHECK(example.step(changed) == std::array{a, b, c, d});
  CHECK_FALSE(changed);
}

TEST_CASE("what still lives when the next step asks for its first block has no address") {
  Example example;
  example.gone_in_time = false;
  bool changed = false;
  for (int i = 0; i < 3; ++i) example.step(changed);
  const auto [a, b, c, d] = example.step(changed);
  CHECK((a && b && c));
  CHECK_FALSE(d);
  CHECK_FALSE(changed);  // it is not missed either: nothing is learned again
}

TEST_CASE(
    "a block more or less does not put the others off; two steps of other blocks make the layout "
    "be given up") {
  Example example;
  bool changed = false;
  for (int i = 0; i < 3; ++i) example.step(changed);
  LearnedAddresses& addresses = example.addresses;
  for (const std::size_t bytes : {5u, 6u}) {
    CHECK(addresses.height() == 65);
    addresses.begin();
    if (example.outlives != nullptr) addresses.died(std::exchange(example.outlives, nullptr));
    CHECK_FALSE(example.ask(bytes).offset);  // new
    CHECK(example.ask(40).offset);
    CHECK(example.ask(25).offset);
    CHECK_FALSE(example.ask(25).offset);     // the second of its size
    CHECK(addresses.end() == (bytes == 6));  // 30 of 95 bytes had no place: too many
  }
  CHECK(addresses.height() == 0);
  addresses.begin();
  CHECK_FALSE(example.ask(40).offset);
}

TEST_CASE("an odd step now and then, as at the end of each epoch, does not cost the layout") {
  Example example;
  bool changed = false;
  for (int i = 0; i < 2; ++i) example.step(changed);
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (int i = 0; i < 3; ++i) {
      for (const auto& offset : example.step(changed)) CHECK(offset);
      CHECK_FALSE(changed);
    }
    example.addresses.begin();
    CHECK_FALSE(example.ask(7).offset);
    CHECK_FALSE(example.addresses.end());
  }
}

TEST_CASE(
    "steps of two kinds that come by twos are laid out a few times only; after many steps a layout "
    "may be made anew") {
  Steps steps;
  int laid_out = 0;
  const auto step = [&](std::size_t last) {
    steps.addresses.begin();
    std::vector<const void*> all;
    for (std::size_t k = 1; k <= 16; ++k) all.push_back(steps.ask(100 + k).address);
    all.push_back(steps.ask(last).address);
    for (const void* address : all) steps.addresses.died(address);
    if (steps.addresses.end() && steps.addresses.height() > 0) ++laid_out;
  };
  for (std::size_t i = 0; i < 200; ++i) step(1 + i / 2 % 2);
  CHECK(laid_out == 4);
  steps.addresses.forget();
  laid_out = 0;
  for (std::size_t i = 0; i < 200; ++i) step(1 + i / 20);
  CHECK(laid_out == 10);
}

TEST_CASE("one block of many that finds no place does not make the layout be forgotten") {
  Steps steps;
  bool changed = false;
  for (int i = 0; i < 3; ++i) {
    steps.addresses.begin();
    std::vector<const void*> all;
    for (std::size_t k = 1; k <= 16; ++k) all.push_back(steps.ask(100 + k).address);
    if (i == 2) steps.addresses.missed(116);
    for (const void* address : all) steps.addresses.died(address);
    changed = steps.addresses.end();
  }
  CHECK_FALSE(changed);
  CHECK(steps.addresses.height() > 0);
}

TEST_CASE(
    "a step that is broken off teaches nothing, and layouts that are given up again and again are "
    "not made any more") {
  Example example;
  bool changed = false;
  example.step(changed);
  example.addresses.abandon();
  example.step(changed);
  CHECK_FALSE(changed);
  example.step(changed);
  CHECK(changed);
  int laid_out = 0;
  for (int i = 0; i < 40; ++i) {
    example.addresses.begin();
    example.addresses.missed(1000);
    const auto block = example.ask(static_cast<std::size_t>(1 + i / 2));
    example.addresses.died(block.address);
    if (example.addresses.end() && example.addresses.height() > 0) ++laid_out;
  }
  CHECK(laid_out == 3);  // and the one above
  example.addresses.forget();
  example.step(changed);
  example.step(changed);
  CHECK(changed);  // a new beginning
}

TEST_CASE("in random steps no two blocks that are alive at once overlap") {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Steps steps;
    for (int step = 0; step < 4; ++step) {
      std::mt19937 random(seed);  // the same step each time
      struct Alive {
        const void* address;
        std::optional<std::size_t> offset;
        std::size_t bytes;
      };
      std::vector<Alive> alive;
      std::size_t most = 0;
      steps.addresses.begin();
      for (int i = 0; i < 200; ++i) {
        const std::size_t bytes = 1 + random() % 50;
        const auto born = steps.ask(bytes);
        for (const Alive& other : alive)
          if (step >= 2)
            REQUIRE((*born.offset + bytes <= *other.offset ||
                     *other.offset + other.bytes <= *born.offset));
        if (step >= 2) REQUIRE(*born.offset + bytes <= steps.addresses.height());
        alive.push_back({born.address, born.offset, bytes});
        std::size_t sum = 0;
        for (const Alive& each : alive) sum += each.bytes;
        most = std::max(most, sum);
        while (!alive.empty() && random() % 2 == 0) {
          std::swap(alive[random() % alive.size()], alive.back());
          steps.addresses.died(alive.back().address);
          alive.pop_back();
        }
      }
      static_cast<void>(steps.addresses.end());
      for (const Alive& each : alive) steps.addresses.died(each.address);
      if (step >= 1) CHECK(steps.addresses.height() >= most);
      if (step >= 1) CHECK(steps.addresses.height() <= most + most / 3);
    }
  }
}
