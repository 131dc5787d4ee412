# Install rules and the package: find_package(reprise) needs no LibTorch, find_package(reprise COMPONENTS libtorch) does.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/reprise")

install(TARGETS reprise EXPORT reprise-targets FILE_SET HEADERS)
install(TARGETS reprise_libtorch EXPORT reprise-libtorch-targets FILE_SET HEADERS FILE_SET cuda)
install(EXPORT reprise-targets NAMESPACE reprise:: DESTINATION "${package_dir}")
install(EXPORT reprise-libtorch-targets NAMESPACE reprise:: DESTINATION "${package_dir}")

configure_package_config_file(cmake/reprise-config.cmake.in reprise-config.cmake INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(reprise-config-version.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/reprise-config.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/reprise-config-version.cmake"
  cmake/RepriseLibTorch.cmake
  DESTINATION "${package_dir}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/reprise")
