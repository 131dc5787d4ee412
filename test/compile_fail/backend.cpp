// A backend without compile() is refused by one line that says what it needs.

#include <reprise/rewrite/rewriter.hpp>

struct Mine {
  using Program = int;
#ifndef REPRISE_MUST_NOT_COMPILE
  Program compile(const reprise::StepGraph&, const reprise::Rewriting&) const { return 0; }
#endif
};

int main() {
  const reprise::StepGraph graph;
  return reprise::Rewriter<Mine>{}.rewrite(graph, reprise::Schedule{});
}
