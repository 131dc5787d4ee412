// Stages in another order are refused by one line that names the order.

#include <reprise/pipeline/pipeline.hpp>

using namespace reprise;

int main() {
#ifdef REPRISE_MUST_NOT_COMPILE
  Pipeline<Planner<>, Profiler<>, Rewriter<>> mine;
#else
  Pipeline<Profiler<>, Planner<>, Rewriter<>> mine;
#endif
  static_cast<void>(mine);
}
