# Finds LibTorch and makes reprise::torch of it: the one place that knows how LibTorch's own package behaves. It is installed
# too, so that find_package(reprise COMPONENTS libtorch) goes the same way.
#
# Sets  reprise_torch_version, reprise_torch_prefix   what was found
#       reprise_torch_problem                         why there is no reprise::torch, in one sentence
#
# The package of a CUDA build insists on a whole CUDA toolkit. Reprise's CPU side needs none, so where there is none the
# CPU half of that LibTorch is used, past its package.

set(reprise_torch_version "")
set(reprise_torch_prefix "")
set(reprise_torch_problem "")

# Only where it is: loading it is an error where a CUDA toolkit is missing.
find_path(reprise_torch_config_dir TorchConfig.cmake
  HINTS ${Torch_DIR} ENV Torch_DIR
  PATH_SUFFIXES share/cmake/Torch lib/cmake/Torch lib/${CMAKE_LIBRARY_ARCHITECTURE}/cmake/Torch Torch
  NO_CACHE)
if(NOT reprise_torch_config_dir)
  set(reprise_torch_problem "no TorchConfig.cmake was found; put LibTorch's folder into CMAKE_PREFIX_PATH, as scripts/setup does")
  return()
endif()

get_filename_component(reprise_torch_prefix "${reprise_torch_config_dir}/../../.." ABSOLUTE)
set(reprise_torch_has_cuda OFF)
if(EXISTS "${reprise_torch_prefix}/lib/libtorch_cuda.so")
  set(reprise_torch_has_cuda ON)
  find_package(CUDAToolkit QUIET)
endif()

if(reprise_torch_has_cuda AND NOT CUDAToolkit_FOUND)
  message(STATUS "LibTorch in ${reprise_torch_prefix} is a CUDA build and there is no CUDA toolkit: using its CPU half")
  include("${reprise_torch_config_dir}/TorchConfigVersion.cmake" OPTIONAL)
  set(reprise_torch_version "${PACKAGE_VERSION}")
  if(NOT TARGET reprise::torch)
    add_library(reprise::torch INTERFACE IMPORTED)
    target_include_directories(reprise::torch INTERFACE
      "${reprise_torch_prefix}/include" "${reprise_torch_prefix}/include/torch/csrc/api/include")
    # torch_cpu registers its kernels when it is loaded: it must stay even where no symbol of it is named.
    target_link_libraries(reprise::torch INTERFACE
      "-Wl,--no-as-needed,${reprise_torch_prefix}/lib/libtorch_cpu.so" "-Wl,--as-needed" "${reprise_torch_prefix}/lib/libc10.so")
    # The CUDA runtime that torch_cpu itself needs comes with Python packages, where only the loader finds it.
    target_link_options(reprise::torch INTERFACE "-Wl,--allow-shlib-undefined" "-Wl,-rpath,${reprise_torch_prefix}/lib")
  endif()
  return()
endif()

# LibTorch's package warns about what a program that links it never needs (kineto, MKL): not shown.
set(reprise_message_level "${CMAKE_MESSAGE_LOG_LEVEL}")
set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
find_package(Torch CONFIG QUIET PATHS "${reprise_torch_config_dir}" NO_DEFAULT_PATH)
set(CMAKE_MESSAGE_LOG_LEVEL "${reprise_message_level}")
if(NOT Torch_FOUND)
  set(reprise_torch_problem "the package in ${reprise_torch_config_dir} cannot be used: ${Torch_NOT_FOUND_MESSAGE}")
  return()
endif()
set(reprise_torch_version "${Torch_VERSION}")

if(NOT TARGET reprise::torch)
  # TORCH_CXX_FLAGS (the C++ ABI of old builds) is already an interface option of the target torch.
  add_library(reprise::torch INTERFACE IMPORTED)
  target_link_libraries(reprise::torch INTERFACE ${TORCH_LIBRARIES})
endif()
