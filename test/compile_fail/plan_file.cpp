// A program that saves a plan without the header that writes it is refused by one line that names
// the header.

#include <reprise/libtorch/train_step.hpp>
#ifndef REPRISE_MUST_NOT_COMPILE
#include <reprise/plan/plan_file.hpp>
#endif

using Loss = at::Tensor (*)(const at::Tensor&);

void save(const reprise::TrainStep<Loss>& step);
void save(const reprise::TrainStep<Loss>& step) { step.save_plan("plan.json"); }
