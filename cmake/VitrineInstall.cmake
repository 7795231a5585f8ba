# What `cmake --install` writes besides the command: every library, its headers, and the package that
# find_package(Vitrine) reads. A project links Vitrine::<folder of src/>, e.g. Vitrine::run.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Vitrine)

get_property(libraries GLOBAL PROPERTY VITRINE_LIBRARIES)
install(TARGETS ${libraries} EXPORT VitrineTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT VitrineTargets NAMESPACE Vitrine:: DESTINATION ${package_dir})

# Headers keep their folders, so that an include reads the same here and there. The command's own headers and
# those of the kernels are nobody else's.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/vitrine
  FILES_MATCHING PATTERN "*.h"
  PATTERN cli EXCLUDE
  PATTERN fast EXCLUDE
  PATTERN reference EXCLUDE)

configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/VitrineConfig.cmake.in
  ${CMAKE_BINARY_DIR}/VitrineConfig.cmake INSTALL_DESTINATION ${package_dir})
# Interfaces may change with every minor version until 1.0.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/VitrineConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_BINARY_DIR}/VitrineConfig.cmake ${CMAKE_BINARY_DIR}/VitrineConfigVersion.cmake
  ${CMAKE_SOURCE_DIR}/cmake/FindOneDNN.cmake ${CMAKE_SOURCE_DIR}/cmake/FindGpuLibraries.cmake
  DESTINATION ${package_dir})
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
