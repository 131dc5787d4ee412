"""Reprise for Conan 2: conan create packaging/conan --build=missing

The package has the headers and Reprise's own CMake package, so that find_package(reprise) is the same as without Conan. With
with_libtorch=True Conan brings LibTorch too; otherwise find_package(reprise COMPONENTS libtorch) takes the one in CMAKE_PREFIX_PATH.
"""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain
from conan.tools.files import copy, load, rmdir

required_conan_version = ">=2.1"


class RepriseRecipe(ConanFile):
    name = "reprise"
    description = "Trains a LibTorch model inside a memory budget, with the same numbers, bit for bit"
    license = "Apache-2.0"
    topics = ("libtorch", "pytorch", "training", "memory", "checkpointing", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"with_libtorch": [True, False]}
    default_options = {"with_libtorch": False, "boost/*:header_only": True}
    no_copy_source = True

    @property
    def _tree(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self._tree, "include", "reprise", "base", "version.hpp"))
        self.version = ".".join(re.findall(r"#define REPRISE_VERSION_\w+ (\d+)", header))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*"):
            copy(self, pattern, self._tree, self.export_sources_folder)

    def requirements(self):
        self.requires("boost/[>=1.74 <2]", transitive_headers=True)
        self.requires("nlohmann_json/[>=3.11 <4]", transitive_headers=True)
        self.requires("range-v3/[>=0.12 <1]", transitive_headers=True)
        if self.options.with_libtorch:
            self.requires("libtorch/[>=2.4 <3]", transitive_headers=True, transitive_libs=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()  # the same files whatever the compiler and the options

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        for what in ("TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables[f"REPRISE_BUILD_{what}"] = False
        toolchain.cache_variables["REPRISE_LIBTORCH"] = "OFF"  # what is installed is the same with it
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "share", "licenses"))

    def package_info(self):
        # CMake finds Reprise's own package, which knows its targets and their dependencies. The components tell the same to
        # build systems other than CMake.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "reprise")]  # CMakeConfigDeps reads this one, not the components'

        core = self.cpp_info.components["reprise"]
        core.set_property("cmake_target_name", "reprise::reprise")
        core.set_property("pkg_config_name", "reprise")
        core.requires = ["boost::headers", "nlohmann_json::nlohmann_json", "range-v3::range-v3"]

        libtorch = self.cpp_info.components["libtorch"]
        libtorch.set_property("cmake_target_name", "reprise::libtorch")
        libtorch.set_property("pkg_config_name", "reprise-libtorch")
        libtorch.requires = ["reprise"]
        if self.options.with_libtorch:
            libtorch.requires.append("libtorch::libtorch")

        for component in (core, libtorch):
            component.builddirs = [os.path.join("share", "cmake", "reprise")]
            component.bindirs = []
            component.libdirs = []
