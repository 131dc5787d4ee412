#include "step_engine.hpp"

template class reprise::training::StepEngine<>;
