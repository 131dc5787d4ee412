#include <reprise/report/listing.hpp>

#include <sstream>

#include <reprise_test/toy.hpp>

namespace {

std::string listing(const StepGraph& graph, const Schedule& schedule) {
  std::ostringstream out;
  write_listing(out, graph, rewrite(graph, schedule));
  return out.str();
}

}  // namespace

TEST_CASE("a listing tells clones, bytes and effects") {
  CHECK(listing(toy_graph(), toy_schedule()) ==
        "0  h = norm(x)  + h 8192 B  notes and updates mean\n"
        "1  h.relu = relu(h)\n"
        "2  h.flat = flat(h.relu)  - h\n"
        "3  wide = wide(x)  + wide 16384 B\n"
        "4  loss = sum(wide)  + loss 4 B  - wide\n"
        "5  h#1 = norm#1(x)  + h#1 8192 B  leaves mean alone\n"
        "6  h.relu#1 = relu#1(h#1)\n"
        "7  h.flat#1 = flat#1(h.relu#1)\n"
        "8  g = grad(x, h.flat#1)  + g 4096 B  - h#1\n"
        "peak 20548 B, hands over loss, g\n");
}

TEST_CASE("a listing names what has no name by its id") {
  GraphBuilder b;
  const ValueId v = b.add_value({.id = 30, .bytes = 8_B});
  b.add_node({.id = 7}, {}, {v});
  b.add_node({.id = 9}, {v}, {});
  CHECK(listing(std::move(b).build(), nodes({0, 1})) ==
        "0  value 30 = node 7()  + value 30 8 B\n"
        "1  node 9(value 30)  - value 30\n"
        "peak 8 B, hands over \n");
}

TEST_CASE("a listing that cannot be written says so") {
  std::ostringstream out;
  out.setstate(std::ios::failbit);
  CHECK(refusal([&] { write_listing(out, toy_graph(), rewrite(toy_graph(), toy_schedule())); }) ==
        "input/output: the listing could not be written: the stream has failed");
}
