# Finds what GPU code links, as targets GpuLibraries::cudart (static), cublasLt, cudnn and nccl, and the folder of CUPTI,
# which is loaded when a trace starts. Looks beside nvcc (on the PATH), in CUDA_HOME and CUDA_PATH, and in /usr/local/cuda;
# -DCMAKE_PREFIX_PATH names another place.
find_program(GpuLibraries_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
set(GpuLibraries_ROOT)
if(GpuLibraries_NVCC)
  get_filename_component(GpuLibraries_ROOT ${GpuLibraries_NVCC} DIRECTORY)
  get_filename_component(GpuLibraries_ROOT ${GpuLibraries_ROOT} DIRECTORY)
endif()
set(gpu_libraries_found)
foreach(library cudart_static cublasLt cudnn nccl cupti)
  find_library(GpuLibraries_${library} ${library}
    HINTS ${GpuLibraries_ROOT} ${GpuLibraries_ROOT}/extras/CUPTI ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
    PATH_SUFFIXES lib64 lib lib/x86_64-linux-gnu)
  mark_as_advanced(GpuLibraries_${library})
  list(APPEND gpu_libraries_found GpuLibraries_${library})
endforeach()
mark_as_advanced(GpuLibraries_NVCC)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(GpuLibraries REQUIRED_VARS ${gpu_libraries_found})
if(GpuLibraries_FOUND AND NOT TARGET GpuLibraries::cudart)
  find_package(Threads REQUIRED)
  foreach(library cublasLt cudnn nccl)
    add_library(GpuLibraries::${library} UNKNOWN IMPORTED)
    set_target_properties(GpuLibraries::${library} PROPERTIES IMPORTED_LOCATION "${GpuLibraries_${library}}")
  endforeach()
  add_library(GpuLibraries::cudart STATIC IMPORTED)
  set_target_properties(GpuLibraries::cudart PROPERTIES
    IMPORTED_LOCATION "${GpuLibraries_cudart_static}" INTERFACE_LINK_LIBRARIES "dl;rt;Threads::Threads")
endif()
