// An analysis that gives a number alone is refused by one line that says what it must give.

#include <reprise/pipeline/analysis_stage.hpp>

struct Mine {
#ifdef REPRISE_MUST_NOT_COMPILE
  reprise::Bytes analyse(const reprise::StepGraph&) const { return {}; }
#else
  reprise::StepAnalysis analyse(const reprise::StepGraph&) const { return {}; }
#endif
};

int main() { return reprise::pipelines::is_analysis_stage<Mine>() ? 0 : 1; }
