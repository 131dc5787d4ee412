#include "step_engine.hpp"

template class reprise::StepEngine<>;
