// SPDX-License-Identifier: Apache-2.0
// The versions that a fetch makes, and the link to the one in use.
#include "kata-manager/artifacts/fetch.h"

#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "host/system/agent_folders.h"
#include "kata-manager/artifacts/artifact_links.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "kata-manager/artifacts/artifact_version.h"
#include "kata-manager/artifacts/known_artifacts.h"
#include "tests/kata-manager/archives.h"
#include "tests/kata-manager/fetch_store.h"
#include "tests/kata-manager/killed_at.h"
#include "tests/support/as_user.h"

namespace ferry::kata {
namespace {

using test::HttpAnswer;
using test::must;
using test::ReceivedRequest;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

TEST_F(Fetch, TwiceWritesNothing) {
  registry.image(layers());
  const fs::path version = scratch.path() / must(fetch()).version.relative_path();
  const auto written = [&] {
    return std::pair(fs::last_write_time(version), fs::last_write_time(version.string() + ".json"));
  };
  const auto before = written();
  const Artifact again = must(fetch());
  EXPECT_FALSE(again.changed);
  EXPECT_EQ(written(), before);
  EXPECT_EQ(registry.asked("/blobs/"), 3U) << "two layers and the configuration, and no blob again";
}

TEST_F(Fetch, OfADigestThatIsHereAsksNobody) {
  request.url = registry.address() + "/kata/gpu@" + registry.image(layers());
  must(fetch());
  const auto asked = registry.seen().size();
  EXPECT_FALSE(must(fetch()).changed);
  EXPECT_EQ(registry.seen().size(), asked);
}

TEST_F(Fetch, UsesWhatIsHereWhereNoRegistryCanBeReached) {
  const std::string digest = registry.image(layers());
  must(fetch());
  registry.spoil = [](const ReceivedRequest&, HttpAnswer& answer) { answer = {.status = 503}; };
  EXPECT_EQ(refusal().code, Errc::unreachable) << "only where that is asked for";
  request.or_what_is_here = true;
  const Artifact artifact = must(fetch());
  EXPECT_EQ(artifact.digest, digest);
  EXPECT_FALSE(artifact.changed);
  EXPECT_THAT(artifact.notes, ElementsAre(testing::AllOf(HasSubstr("cannot be reached"), HasSubstr(digest),
                                                         HasSubstr("503"))));
  for (const int status : {401, 403, 404}) {
    registry.spoil = [&](const ReceivedRequest&, HttpAnswer& answer) { answer = {.status = status}; };
    EXPECT_FALSE(fetch().has_value()) << status;
  }
  registry.spoil = [](const ReceivedRequest&, HttpAnswer& answer) { answer = {.status = 503}; };
  request.url = registry.reference("another");
  EXPECT_EQ(refusal().code, Errc::unreachable) << "what is here is not that";
  request.url = registry.reference();
  scratch.file(artifact.version.relative_path() / "guest.img", "cut");
  EXPECT_EQ(refusal().code, Errc::unreachable) << "what is here is not whole";
}

TEST_F(Fetch, UsesNotWhatIsHereOnceTheRegistryHasSaidThatItIsAnother) {
  registry.image(layers());
  must(fetch());
  registry.image(layers("newer"));
  registry.spoil = [](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (seen.path.find("/blobs/") != std::string::npos) answer = {.status = 503};
  };
  request.or_what_is_here = true;
  EXPECT_EQ(refusal().code, Errc::unreachable);
}

TEST_F(Fetch, UsesNoSetuidFilesThatAreAllowedNoMore) {
  auto image = layers();
  image.push_back({.content = test::tar_of({{.path = "bin/su", .content = "x", .mode = 04755}}),
                   .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"});
  const std::string digest = registry.image(image);
  request.allow_setuid = true;
  must(fetch());
  EXPECT_FALSE(must(fetch()).changed);
  request.allow_setuid = false;
  EXPECT_EQ(refusal().code, Errc::refused);
  request.url = registry.address() + "/kata/gpu@" + digest;
  EXPECT_EQ(refusal().code, Errc::refused) << "nor by its digest";
  request.allow_setuid = true;
  EXPECT_EQ(must(fetch()).digest, digest);
  registry.image(layers());
  request.url = registry.reference();
  must(fetch());
  request.allow_setuid = false;
  EXPECT_FALSE(must(fetch()).changed) << "one without such files is no other for having been allowed them";
}

TEST_F(Fetch, SwitchesToANewVersionAndKeepsTheOld) {
  const std::string first = registry.image(layers());
  must(fetch());
  const std::string second = registry.image(layers("newer"));
  const Artifact artifact = must(fetch());
  EXPECT_EQ(artifact.digest, second);
  EXPECT_EQ(seen("guest.img"), "newer");
  EXPECT_EQ(content("opt/artifacts/.ferry/kata-gpu/" + folder_of(first) + "/guest.img"), "guest");
  const auto asked = registry.asked("/blobs/");
  registry.image(layers());
  EXPECT_TRUE(must(fetch()).changed);
  EXPECT_EQ(seen("guest.img"), "guest") << "back again";
  EXPECT_EQ(registry.asked("/blobs/"), asked) << "from what is here";
}

TEST_F(Fetch, LeavesTheVersionInUseWhereTheNewOneCannotBeHad) {
  registry.image(layers());
  must(fetch());
  registry.image({{.content = "no configuration", .title = "guest.img"}});
  EXPECT_EQ(refusal().code, Errc::not_found);
  registry.image({{.content = "= [", .title = "broken.toml"}});
  const auto broken = fetch();
  EXPECT_EQ(broken.error().code, Errc::refused);
  EXPECT_THAT(broken.error().message, HasSubstr("broken.toml:1:"));
  registry.image({{.content = std::string((1U << 20) + 1, '\n'), .title = "endless.toml"}});
  const auto endless = fetch();
  ASSERT_FALSE(endless.has_value());
  EXPECT_EQ(endless.error().code, Errc::refused);
  registry.image({{.content = test::tar_of({{.path = "c.toml", .symlink = "."}}),
                   .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"}});
  EXPECT_EQ(refusal().code, Errc::refused) << "a folder by way of a link";
  EXPECT_FALSE(fs::exists(store() / "staging")) << "what is refused takes no room";
  EXPECT_EQ(seen("guest.img"), "guest");
}

TEST_F(Fetch, NeedsOneConfigurationOrItsName) {
  auto several = layers();
  several.push_back({.content = "a = 1\n", .title = "snp.toml"});
  several.push_back({.content = "a = 1\n", .title = "defaults/deep.toml"});
  registry.image(several);
  const auto unnamed = fetch();
  ASSERT_FALSE(unnamed.has_value());
  EXPECT_EQ(unnamed.error().code, Errc::refused);
  EXPECT_THAT(unnamed.error().message, HasSubstr("configuration.toml, snp.toml"));
  request.configuration = "defaults/deep.toml";
  EXPECT_EQ(must(fetch()).configuration, "/opt/artifacts/kata-gpu/defaults/deep.toml");
  request.configuration = "snp.toml";
  const Artifact other = must(fetch());
  EXPECT_EQ(other.configuration, "/opt/artifacts/kata-gpu/snp.toml");
  EXPECT_TRUE(other.changed) << "what is recorded";
  EXPECT_EQ(must(current_artifact(host, request.artifacts_dir, request.name, request.url))
                .value_or(Artifact{})
                .configuration,
            other.configuration);
  request.configuration = "absent.toml";
  EXPECT_EQ(refusal().code, Errc::not_found);
}

TEST_F(Fetch, TakesImagesAndPackedFoldersToo) {
  registry.image({{.content = test::tar_of({{.path = "opt/kata/bin/shim", .content = "program", .mode = 0755},
                                            {.path = "configuration.toml", .symlink = "opt/c.toml"},
                                            {.path = "opt/c.toml", .content = "a = 1\n"}}),
                   .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"},
                  {.content = test::tar_of({{.path = "guest/vmlinux", .content = "kernel"}}),
                   .title = "guest",
                   .unpack = true},
                  {.content = "ignored"}});
  const Artifact artifact = must(fetch());
  EXPECT_EQ(seen("guest/vmlinux"), "kernel");
  EXPECT_EQ(seen("opt/kata/bin/shim"), "program");
  EXPECT_EQ(artifact.configuration.filename(), "configuration.toml");
  EXPECT_THAT(artifact.notes, ElementsAre(HasSubstr("passed over: 1")));
}

TEST_F(Fetch, ChoosesThePlatformFromAnIndex) {
  const std::string digest = registry.image(layers(), "amd64-only");
  const std::string type = "application/vnd.oci.image.index.v1+json";
  const std::string image = "application/vnd.oci.image.manifest.v1+json";
  const auto index_of = [&](const std::string& architecture) {
    registry.manifest(R"({"schemaVersion":2,"manifests":[{"mediaType":")" + image +
                          R"(","size":1,"digest":")" + digest +
                          R"(","platform":{"os":"linux","architecture":")" + architecture + R"("}}]})",
                      type);
  };
  index_of("riscv64");
  EXPECT_EQ(refusal().code, Errc::not_found);
  index_of(own_architecture());
  EXPECT_EQ(must(fetch()).digest, digest);
}

TEST_F(Fetch, PutsAsideAFolderThatWasThere) {
  scratch.file("opt/artifacts/kata-gpu/guest.img", "of another program");
  registry.image(layers());
  must(fetch());
  EXPECT_EQ(seen("guest.img"), "guest");
  EXPECT_EQ(content("opt/artifacts/.kata-gpu.replaced-1/guest.img"), "of another program");
}

TEST_F(Fetch, KeepsEachUrlThatLedToAVersion) {
  registry.image(layers());
  registry.image(layers(), "2");
  request.makes_link = false;
  const std::string first = registry.reference("1");
  const std::string second = registry.reference("2");
  const auto current = [&](const std::string& url) {
    return must(current_artifact(host, request.artifacts_dir, request.name, url)).value_or(Artifact{}).url;
  };
  request.url = first;
  const Artifact artifact = must(fetch());
  request.url = second;
  EXPECT_EQ(must(fetch()).version, artifact.version) << "two tags of one digest";
  EXPECT_EQ(current(first), first) << "a class that still has the first one needs no fetch";
  EXPECT_EQ(current(second), second);
  EXPECT_EQ(current(registry.reference("3")), "");
  scratch.remove(artifact.version.relative_path() / "guest.img");
  EXPECT_TRUE(must(fetch()).changed) << "it is made anew";
  EXPECT_EQ(current(first), first);
}

TEST_F(Fetch, UsesAFolderOfTheHostWhereItLies) {
  scratch.file("srv/kata/configuration.toml", "a = 1\n");
  scratch.file("srv/kata/deep/guest.img", "guest");
  request.url = "file:///srv/kata";
  const Artifact artifact = must(fetch());
  EXPECT_EQ(artifact.version, "/srv/kata");
  EXPECT_EQ(artifact.configuration, "/opt/artifacts/kata-gpu/configuration.toml");
  EXPECT_EQ(must(host.read_file("opt/artifacts/kata-gpu/deep/guest.img")), "guest");
  EXPECT_FALSE(must(fetch()).changed);
  scratch.file("srv/kata/deep/guest.img", "other");
  EXPECT_NE(must(fetch()).digest, artifact.digest);
  EXPECT_FALSE(must(current_artifact(host, request.artifacts_dir, request.name, request.url)).has_value());
  registry.image(layers());
  request.url = registry.reference();
  must(fetch());
  EXPECT_EQ(content("srv/kata/deep/guest.img"), "other") << "what is not ours stays";
}

TEST_F(Fetch, FindsTheFilesOfAFolderThatHostdFinds) {
  scratch.file("srv/kata/configuration.toml", "[hypervisor.qemu]\n");
  scratch.file("srv/kata/gpu/vmlinuz", "kernel");
  scratch.file("srv/kata/gpu/deep/image", "image");
  scratch.file("srv/kata/share/kata-containers/vmlinuz", "another kernel");
  scratch.link("srv/kata/gpu/kernel", "vmlinuz");
  request.url = "file:///srv/kata";
  Artifact fetched = must(fetch());
  for (ArtifactFile& one : fetched.files) one.sha256.clear();
  ClassFile file;
  file.artifacts_dir = request.artifacts_dir;
  KataClass kata;
  kata.name = request.name;
  kata.artifacts.url = request.url;
  const auto known = must(known_artifact(host, file, kata)).value_or(Artifact());
  EXPECT_EQ(known.files, fetched.files);
  EXPECT_EQ(known.files.size(), 5U);
  EXPECT_EQ(known.version, fetched.version);
  EXPECT_EQ(known.configuration, "/srv/kata/configuration.toml");
}

TEST_F(Fetch, UsesAFolderInTheVeryPlace) {
  scratch.file("opt/artifacts/kata-gpu/c.toml", "a = 1\n");
  request.url = "file:///opt/artifacts/kata-gpu";
  EXPECT_FALSE(must(fetch()).changed);
  EXPECT_EQ(seen("c.toml"), "a = 1\n");
}

TEST_F(Fetch, UsesAFolderInTheVeryPlaceByAnyPath) {
  scratch.file("opt/artifacts/kata-gpu/c.toml", "a = 1\n");
  scratch.file("opt/artifacts/kata-gpu/deep/c.toml", "a = 1\n");
  scratch.link("other", "opt/artifacts");
  for (const char* url : {"file:///opt/artifacts/kata-gpu/", "file:///opt//artifacts/./kata-gpu/",
                          "file:///other/kata-gpu", "file:///other/kata-gpu/"}) {
    request.url = url;
    EXPECT_FALSE(must(fetch()).changed) << url;
    EXPECT_EQ(seen("c.toml"), "a = 1\n") << url;
    EXPECT_FALSE(fs::is_symlink(top() / "kata-gpu")) << url;
  }
  for (const char* url : {"file:///opt/artifacts/kata-gpu/deep", "file:///other/kata-gpu/deep/"}) {
    request.url = url;
    EXPECT_EQ(refusal().code, Errc::refused) << url;
    EXPECT_EQ(seen("c.toml"), "a = 1\n") << url;
  }
}

TEST_F(Fetch, UsesNoFolderOfItsOwnStore) {
  const std::string digest = registry.image(layers());
  must(fetch());
  const std::string own = "file:///opt/artifacts/.ferry/kata-gpu/";
  for (const auto& url : {own, own + folder_of(digest)}) {
    request.url = url;
    EXPECT_EQ(refusal().code, Errc::refused) << url;
    EXPECT_EQ(seen("guest.img"), "guest") << url;
  }
}

TEST_F(Fetch, TakesNoFolderThatIsNone) {
  scratch.file("srv/file", "x");
  for (const char* url : {"file:///srv/absent", "file:///srv/file"}) {
    request.url = url;
    EXPECT_FALSE(fetch().has_value()) << url;
  }
  for (const char* url : {"file://srv/kata", "file:///srv/../srv", "file://"}) {
    request.url = url;
    EXPECT_EQ(refusal().code, Errc::usage) << url;
  }
}

TEST_F(Fetch, StaysBelowTheHostsRoot) {
  const test::ScratchDirectory outside;
  outside.file("kata/c.toml", "a = 1\n");
  scratch.link("srv", outside.path());
  request.url = "file:///srv/kata";
  EXPECT_EQ(refusal().code, Errc::not_found) << "a link's target is looked for below the root";
  for (const char* folder : {"opt", "/opt/../../etc", ""}) {
    request.artifacts_dir = folder;
    EXPECT_EQ(refusal().code, Errc::usage) << folder;
  }
  request.artifacts_dir = "/opt/artifacts";
  for (const char* name : {"", "..", "a/b", "Kata", ".ferry"}) {
    request.name = name;
    EXPECT_EQ(refusal().code, Errc::usage) << name;
  }
}

}  // namespace
}  // namespace ferry::kata
