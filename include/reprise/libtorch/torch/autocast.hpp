#pragma once
// What a step asks of autocast: LibTorch's own functions, declared here.
//
//   at::autocast::is_autocast_enabled(at::kCPU)
//
// <ATen/autocast_mode.h>, which declares them as well, brings every operator that LibTorch has: a
// second of each file's compiling. Where a file includes both, the compiler sees that they agree.

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/macros/Export.h>

namespace at::autocast {

TORCH_API bool is_autocast_enabled(c10::DeviceType device_type);
TORCH_API void set_autocast_enabled(c10::DeviceType device_type, bool enabled);
TORCH_API c10::ScalarType get_autocast_dtype(c10::DeviceType device_type);
TORCH_API void set_autocast_dtype(c10::DeviceType device_type, c10::ScalarType dtype);
TORCH_API void clear_cache();
TORCH_API int increment_nesting();
TORCH_API int decrement_nesting();
TORCH_API bool is_autocast_cache_enabled();
TORCH_API void set_autocast_cache_enabled(bool enabled);

}  // namespace at::autocast
