// SPDX-License-Identifier: Apache-2.0
// The door, with the real ferry-fetch behind it.
#include "kata-manager/artifacts/artifacts.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "common/process/spawn.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts/content_hash.h"
#include "kata-manager/artifacts/fetch_protocol.h"
#include "tests/kata-manager/fetching.h"
#include "tests/support/sanitizer.h"

namespace ferry::kata {
namespace {

using test::HttpAnswer;
using test::must;
using test::ReceivedRequest;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const std::filesystem::path kProgram = FERRY_FETCH;

class Artifacts : public test::Fetching {};

TEST_F(Artifacts, ComeByAnotherProgram) {
  registry.image(layers());
  registry.instead = [](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
    if (!seen.header("authorization").empty()) return std::nullopt;
    return HttpAnswer{.status = 401, .headers = {"WWW-Authenticate: Basic realm=\"x\""}};
  };
  request.docker_config =
      R"({"auths":{")" + registry.address() + R"(":{"username":"user","password":"secret"}}})";
  const Artifact artifact = must(ferry::kata::fetch(host, request, kProgram));
  EXPECT_TRUE(artifact.changed);
  EXPECT_EQ(artifact.files.size(), 2U);
  EXPECT_EQ(seen("guest.img"), "guest");
  EXPECT_FALSE(must(ferry::kata::fetch(host, request, kProgram)).changed);
}

// hostd has no right over another user's files but that of their group.
TEST_F(Artifacts, OfAnotherUserCanBeRemovedByItsGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto copy = scratch.path() / "ferry-fetch";
  std::filesystem::copy_file(kProgram, copy);
  scratch.file("as-agent", "#!/bin/sh\nexec /usr/bin/setpriv --reuid=64711 --regid=64711 --clear-groups " +
                               copy.string());
  std::filesystem::permissions(scratch.path() / "as-agent", std::filesystem::perms::owner_all);
  ASSERT_EQ(::chown(scratch.path().c_str(), 64711, 64711), 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch.path()))
    ASSERT_EQ(::lchown(entry.path().c_str(), 64711, 64711), 0);

  registry.image(layers());
  must(ferry::kata::fetch(host, request, scratch.path() / "as-agent"));
  std::size_t folders = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(scratch.path() / "opt/artifacts/.ferry")) {
    if (!entry.is_directory()) continue;
    ++folders;
    EXPECT_TRUE((entry.status().permissions() & std::filesystem::perms::group_write) !=
                std::filesystem::perms::none)
        << entry.path();
  }
  EXPECT_GE(folders, 2U) << "the class's and the version's";
}

TEST_F(Artifacts, AreComparedWithWhatTheirFetchHasRecorded) {
  registry.image(layers());
  must(ferry::kata::fetch(host, request, kProgram));
  const auto artifact =
      must(current_artifact(host, request.artifacts_dir, request.name, request.url)).value_or(Artifact());
  EXPECT_THAT(must(changes_since_fetch(host, artifact)), IsEmpty());
  const auto image = artifact.version / "guest.img";
  scratch.file(image.relative_path(), "Guest");
  EXPECT_THAT(must(changes_since_fetch(host, artifact)),
              ElementsAre(StartsWith(image.string() + " has another content")));
}

TEST_F(Artifacts, FailAsTheyWouldHere) {
  const auto missing = ferry::kata::fetch(host, request, kProgram);
  EXPECT_EQ(missing.error().code, Errc::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("manifest unknown"));
  EXPECT_EQ(missing.error().message, refusal().message);
  request.url = "NVCR.io/Upper";
  EXPECT_EQ(ferry::kata::fetch(host, request, kProgram).error().code, Errc::usage);
}

TEST_F(Artifacts, DoNotComeWithoutTheProgram) {
  const auto none = ferry::kata::fetch(host, request, scratch.path() / "ferry-fetch");
  EXPECT_EQ(none.error().code, Errc::unreachable);
  EXPECT_THAT(none.error().hint, HasSubstr("install ferry-fetch"));
  const auto other = ferry::kata::fetch(host, request, "/bin/true");
  EXPECT_EQ(other.error().code, Errc::unreachable);
  EXPECT_EQ(ferry::kata::fetch(host, request, "/usr/bin/id").error().code, Errc::malformed_host);
}

TEST_F(Artifacts, AreNotWaitedForWithoutEnd) {
  registry.image(layers());
  registry.spoil = [](const ReceivedRequest&, HttpAnswer& answer) {
    answer.sent = 1;
    answer.stalls = true;
  };
  request.deadline = std::chrono::seconds(1);
  const auto late = ferry::kata::fetch(host, request, kProgram);
  EXPECT_EQ(late.error().code, Errc::unreachable);
  EXPECT_THAT(late.error().message, HasSubstr("has not ended within 1 s"));
}

// SECURITY.md: its memory has pull secrets, and a registry chooses what it parses.
TEST(FetchProgram, IsBoundedAndEndsWithTheProgramThatStartedIt) {
  const test::ScratchDirectory scratch;
  const HostFs host(scratch.path());
  ASSERT_EQ(::mkfifo((scratch.path() / "request").c_str(), 0600), 0);
  const UniqueFd request = must(host.open("request", O_RDWR));  // of which it waits for the end
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const UniqueFd output(pipe[0]);
  UniqueFd end(pipe[1]);
  const int parent = must(spawn("sh",
                                {"sh", "-c", "cd \"$1\"; \"$0\" < request & echo $! > pid; exec sleep 600",
                                 kProgram.string(), scratch.path().string()},
                                {.out = end.get()}));
  end = UniqueFd();
  const HostFs proc("/proc");
  constexpr const char* kNoCore = "Max core file size        0                    0 ";
  // The last limit that it sets. The address sanitizer needs terabytes of addresses.
  constexpr const char* kMemory = "Max address space         1073741824           ";
  const char* const last = test::kAddressSanitizer ? kNoCore : kMemory;
  std::string limits;
  for (int i = 0; i < 2000 && limits.find(last) == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::string pid = host.read_attribute("pid").value_or("");
    if (!pid.empty()) limits = proc.read_file(pid + "/limits").value_or("");
  }
  EXPECT_THAT(limits, HasSubstr(last));
  EXPECT_THAT(limits, HasSubstr(kNoCore));
  EXPECT_EQ(::kill(parent, SIGKILL), 0);
  EXPECT_EQ(reap(parent), 128 + SIGKILL);
  pollfd ended{.fd = output.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ended, 1, 20'000), 1) << "it has ended, too";
}

TEST(FetchProtocol, PassesOnEveryField) {
  FetchJob job{.host_root = "/host", .request = {}};
  job.request = {.name = "n",
                 .url = "u",
                 .artifacts_dir = "/a",
                 .configuration = "c",
                 .docker_config = "d",
                 .authorities = "p",
                 .registries = {{"r", {"https://e", "http://f"}}},
                 .proxy = "x",
                 .no_proxy = {"y", "z"},
                 .makes_link = false,
                 .allow_setuid = true,
                 .or_what_is_here = true,
                 .limits = {.bytes = 1, .files = 2, .layers = 3, .document = 4},
                 .retries = 5,
                 .deadline = std::chrono::seconds(11)};
  const std::string text = job_text(job);
  // Every value is another one, so that the same text again means that none was lost or mixed up.
  EXPECT_EQ(job_text(must(read_job(text))), text);
  const Artifact artifact{.name = "n",
                          .url = "u",
                          .digest = "d",
                          .folder = "f",
                          .version = "v",
                          .configuration = "c",
                          .files = {{.path = "p", .size = 1, .sha256 = "s", .link = "l"}},
                          .changed = true,
                          .notes = {"o"}};
  EXPECT_EQ(answer_text(must(read_answer(answer_text(artifact)))), answer_text(artifact));
  const Error ours{.code = make_error_code(Errc::refused), .message = "m", .hint = "h"};
  const auto refused = read_answer(answer_text(fail(ours)));
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_EQ(refused.error().text(), "m; h");
  EXPECT_EQ(read_answer(answer_text(fail(error_from_errno(ENOSPC, "write x")))).error().code,
            std::errc::no_space_on_device);
}

TEST(FetchProtocol, IsRefusedWhereItCannotBeRead) {
  for (const char* bad : {"", "{", "[]", "{}", R"({"name":1})", "null"})
    EXPECT_EQ(read_job(bad).error().code, Errc::malformed_host) << bad;
  for (const char* bad : {"", "{", "{}", R"({"artifact":{}})", R"({"error":{"code":"x"}})"})
    EXPECT_EQ(read_answer(bad).error().code, Errc::malformed_host) << bad;
}

}  // namespace
}  // namespace ferry::kata
