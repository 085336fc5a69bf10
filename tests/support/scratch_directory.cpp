// SPDX-License-Identifier: Apache-2.0
#include "tests/support/scratch_directory.h"

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

namespace ferry::test {
namespace fs = std::filesystem;

ScratchDirectory::ScratchDirectory() {
  // Memory-backed where there is such a thing: trees of thousands of small files are made and thrown away.
  fs::path base = fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
  // Whoever kills a test that hangs says where to, and clears up after it.
  if (const char* elsewhere = std::getenv("FERRY_TEST_SCRATCH")) base = elsewhere;
  std::string name = (base / "ferry-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
  path_ = name;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void ScratchDirectory::directory(const fs::path& relative) const {
  fs::create_directories(path_ / relative);
}

void ScratchDirectory::file(const fs::path& relative, std::string_view content) const {
  std::ofstream out(path_ / relative, std::ios::binary | std::ios::trunc);
  if (!out.is_open()) {  // mostly the directory is there, and looking for it takes longer than the write
    fs::create_directories((path_ / relative).parent_path());
    out.open(path_ / relative, std::ios::binary | std::ios::trunc);
  }
  out << content;
  if (!out.flush()) throw std::runtime_error("cannot write " + relative.string());
}

void ScratchDirectory::link(const fs::path& relative, const fs::path& target) const {
  fs::create_directories((path_ / relative).parent_path());
  fs::remove(path_ / relative);
  fs::create_symlink(target, path_ / relative);
}

void ScratchDirectory::remove(const fs::path& relative) const {
  std::error_code error;
  do fs::remove_all(path_ / relative, error);
  while (error == std::errc::directory_not_empty);  // somebody fills it meanwhile
  if (error) throw fs::filesystem_error("remove", path_ / relative, error);
}

}  // namespace ferry::test
