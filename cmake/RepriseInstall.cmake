# Install rules, the CMake package and the Debian package.
#
#   cmake --install build --prefix <prefix>    find_package(reprise) needs no LibTorch, find_package(reprise COMPONENTS libtorch) does
#   cd build && cpack                          libreprise-dev_<version>_all.deb

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Distributions name folders absolutely as well. Inside the prefix that is the same; outside of it nothing could be moved any more.
foreach(folder IN ITEMS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_DATADIR)
  if(NOT IS_ABSOLUTE "${${folder}}")
    continue()
  endif()
  cmake_path(IS_PREFIX CMAKE_INSTALL_PREFIX "${${folder}}" NORMALIZE inside)
  if(NOT inside)
    message(FATAL_ERROR "${folder} is ${${folder}}, which is not inside of CMAKE_INSTALL_PREFIX, ${CMAKE_INSTALL_PREFIX}: "
      "what is installed could not be moved. Name it as it lies in the prefix, such as include or share")
  endif()
  cmake_path(RELATIVE_PATH ${folder} BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
endforeach()

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

# --- Debian -----------------------------------------------------------------------------------------------------------

if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME libreprise-dev)
  set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
  set(CPACK_PACKAGE_VENDOR Reprise)
  set(CPACK_PACKAGE_CONTACT "The Reprise authors <reprise@localhost>")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libboost-dev (>= 1.74) | libboost-graph-dev (>= 1.74), librange-v3-dev (>= 0.12), nlohmann-json3-dev (>= 3.11)")
  set(CPACK_REPRISE_LICENSES "${CMAKE_INSTALL_DATADIR}/licenses")  # for the script
  set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/packaging/debian/copyright.cmake")
  include(CPack)
endif()
