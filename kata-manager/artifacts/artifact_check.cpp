// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/artifact_check.h"

#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>

#include "kata-manager/artifacts/content_hash.h"

namespace ferry::kata {
namespace {

class Comparison {
 public:
  Comparison(const HostFs& host, const std::function<void(const FetchProgress&)>& told)
      : host_(host), told_(told) {}

  Result<std::vector<std::string>> of(const Artifact& artifact) {
    for (const ArtifactFile& file : artifact.files) progress_.total += file.size;
    std::vector<std::string> out;
    for (const ArtifactFile& file : artifact.files) {
      const auto path = artifact.version / file.path;
      const auto what = file.link.empty() ? of_file(file, path) : of_link(file, path);
      if (!what) return fail(Error(what.error()));
      if (const auto& found = *what) out.push_back(path.string() + " " + *found);
    }
    return out;
  }

 private:
  using Found = std::optional<std::string>;

  Result<Found> of_link(const ArtifactFile& file, const std::filesystem::path& path) const {
    const auto target = host_.link_target(path.relative_path());
    if (!target && is_gone(target.error())) return Found("is not there");
    if (!target || *target != file.link) return Found("is no link to " + file.link);
    return Found();
  }

  Result<Found> of_file(const ArtifactFile& file, const std::filesystem::path& path) {
    if (file.sha256.empty()) return Found();  // a folder of file:// has no hashes
    // A link or a pipe may be in the file's place; opening it must not follow or block.
    const auto fd = host_.open(path.relative_path(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (!fd && is_gone(fd.error())) return Found("is not there");
    if (!fd && fd.error().code == std::errc::too_many_symbolic_link_levels) return Found("is a link");
    if (!fd) return fail(Error(fd.error()));
    struct stat status {};
    if (::fstat(fd->get(), &status) != 0) return fail(error_from_errno(errno, "stat " + path.string()));
    if (!S_ISREG(status.st_mode)) return Found("is no file");
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (size != file.size)
      return Found(fmt::format("has {} bytes, and had {} when it was fetched", size, file.size));
    const auto hash = sha256_of(fd->get(), path.string(), [&](std::size_t bytes) { tell(bytes); });
    if (!hash) return fail(Error(hash.error()));
    if (*hash != file.sha256) return Found("has another content than when it was fetched");
    return Found();
  }

  void tell(std::size_t bytes) {
    progress_.done += bytes;
    if (told_) told_(progress_);
  }

  const HostFs& host_;
  const std::function<void(const FetchProgress&)>& told_;
  FetchProgress progress_;
};

}  // namespace

Result<std::vector<std::string>> changes_since_fetch(const HostFs& host, const Artifact& artifact,
                                                     const std::function<void(const FetchProgress&)>& told) {
  return Comparison(host, told).of(artifact);
}

}  // namespace ferry::kata
