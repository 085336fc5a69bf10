// SPDX-License-Identifier: Apache-2.0
// Whatever an archive says: nothing appears outside of its folder, no link in it leads out, and no limit is
// passed.
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <unistd.h>

#include "common/unique_fd.h"
#include "kata-manager/artifacts/artifact_tree.h"
#include "kata-manager/artifacts/inner_path.h"
#include "kata-manager/artifacts/unpack.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"

void ferry::fuzz::one_input(std::string_view text) {
  constexpr kata::ArtifactLimits kLimits{.bytes = 1U << 20, .files = 50};
  static const test::ScratchDirectory scratch;
  const auto top = scratch.path() / "a" / "top";
  std::filesystem::create_directories(top);
  const UniqueFd archive(::memfd_create("archive", MFD_CLOEXEC));
  require(::write(archive.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()), "memory");
  const auto open_top = [&] { return UniqueFd(::open(top.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); };
  kata::SafeTree tree(open_top(), kLimits);
  const auto done = kata::unpack(archive.get(), tree, {});
  require(done || !done.error().message.empty(), "a refusal says why");
  const auto found = kata::list_tree(open_top(), false, 1000);
  require(found.has_value(), "only files, folders and links");
  std::uint64_t bytes = 0;
  for (const kata::ArtifactFile& file : found->files) {
    bytes += file.size;
    if (file.link.empty()) continue;
    const auto at =
        kata::inner_path(file.path.parent_path().empty() ? "." : file.path.parent_path().string());
    require(at && kata::link_stays_inside(*at, file.link), "no link leads out");
  }
  // Another name of a file counts as no bytes of its own, and shows its size again.
  require(bytes <= kLimits.bytes * (kLimits.files + 1), "limits hold");
  std::filesystem::remove_all(top);
  std::size_t outside = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::recursive_directory_iterator(scratch.path()))
    ++outside;
  require(outside == 1, "nothing outside");
}
