#pragma once
// Reprise, with the engine of a TrainStep compiled once, in step_engine.cpp, for all examples,
// benchmarks and tests.

#include <torch/torch.h>

#include <reprise/libtorch.hpp>

extern template class reprise::training::StepEngine<>;
