// SPDX-License-Identifier: Apache-2.0
#include "virt/virt_client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/errc_words.h"
#include "common/process/spawn.h"
#include "common/text/json.h"
#include "common/text/words.h"
#include "common/unique_fd.h"

namespace ferry::virt {
namespace {

using Json = nlohmann::ordered_json;

// Thrown by the readers below for a value of another form; read_domains_answer() catches it.
struct Unreadable {
  std::string why;
};

Domain domain_of(const Json& value) {
  Domain domain{.name = value.at("name"), .uuid = value.at("uuid"), .pid = {}, .pci = {}, .mdev = {}};
  if (value.contains("pid")) {
    // The library says no for a fraction and for a number beyond 64 bits: as an int both would be undefined.
    if (!value["pid"].is_number_integer()) throw Unreadable{value["pid"].dump() + " is no process ID"};
    domain.pid = value["pid"].get<int>();
  }
  for (const Json& text : value.at("pci")) {
    auto address = vfio::PciAddress::parse(text.get_ref<const std::string&>());
    if (!address) throw Unreadable{address.error().message};
    domain.pci.push_back(*address);
  }
  domain.mdev = value.at("mdev").get<std::vector<std::string>>();
  return domain;
}

// Invalid UTF-8 is replaced: libvirt's texts and domain names may hold any bytes.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string answer_text(const std::vector<Domain>& domains) {
  Json list = Json::array();
  for (const Domain& domain : domains) {
    Json entry = {{"name", domain.name}, {"uuid", domain.uuid}};
    if (domain.pid) entry["pid"] = *domain.pid;
    entry["pci"] = Json::array();
    for (const vfio::PciAddress& address : domain.pci) entry["pci"].push_back(address.text());
    entry["mdev"] = domain.mdev;
    list.push_back(std::move(entry));
  }
  return dump({{"domains", std::move(list)}});
}

std::string answer_text(const Error& error) {
  std::string_view code = "failed";
  for (const auto& [name, errc] : kErrcWords)
    if (error.code == errc) code = name;
  return dump({{"error", {{"code", code}, {"message", error.message}, {"hint", error.hint}}}});
}

Result<std::vector<Domain>> read_domains_answer(std::string_view text) {
  const auto document = parse_document(text, "ferry-virt's answer", {});
  if (!document) return fail(document.error());
  try {
    const Json answer = *document;
    if (answer.contains("error")) {
      const Json& error = answer["error"];
      const auto& code = error.at("code").get_ref<const std::string&>();
      return fail(Error{.code = value_for(kErrcWords, code).value_or(Errc::failed),
                        .message = error.at("message"),
                        .hint = error.value("hint", "")});
    }
    std::vector<Domain> domains;
    for (const Json& domain : answer.at("domains")) domains.push_back(domain_of(domain));
    return domains;
  } catch (const nlohmann::json::exception& unreadable) {
    return fail(Errc::malformed_host,
                fmt::format("ferry-virt's answer cannot be read: {}", unreadable.what()));
  } catch (const Unreadable& unreadable) {
    return fail(Errc::malformed_host, "ferry-virt's answer cannot be read: " + unreadable.why);
  }
}

namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(error_from_errno(errno, "make a pipe"));
  return Pipe{.reader = UniqueFd(ends[0]), .writer = UniqueFd(ends[1])};
}

// Returns true if more may come.
bool drain(int fd, std::string& into) {
  std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n < 0) return errno == EINTR;
  into.append(buffer.data(), static_cast<std::size_t>(n));
  return n > 0;
}

// Reads both outputs to their ends; false when the deadline came first.
bool collect(const UniqueFd& out, const UniqueFd& err, Clock::time_point until, HelperOutput& output) {
  std::array<pollfd, 2> watched = {
      {{.fd = out.get(), .events = POLLIN, .revents = 0}, {.fd = err.get(), .events = POLLIN, .revents = 0}}};
  while (watched[0].fd >= 0 || watched[1].fd >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return false;
    const int ready = ::poll(watched.data(), watched.size(), static_cast<int>(left.count()));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    // poll() ignores a negative descriptor.
    if (watched[0].revents != 0 && !drain(watched[0].fd, output.out)) watched[0].fd = -1;
    if (watched[1].revents != 0 && !drain(watched[1].fd, output.err)) watched[1].fd = -1;
  }
  return true;
}

constexpr std::chrono::milliseconds kForTheEnd{200};

// Returns true if the process has ended by then; it must still be reaped.
bool ends(pid_t pid, Clock::time_point until) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid()) return true;
  for (;;) {
    const auto left = std::max(std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()),
                               std::chrono::milliseconds(0));
    pollfd watched{.fd = process.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (left.count() == 0 || (ready < 0 && errno != EINTR)) return false;
  }
}

// Reaps earlier processes that have ended since, and keeps this one for a later call.
void collect_later(pid_t pid) {
  static std::mutex mutex;
  static std::vector<pid_t> left;
  const std::lock_guard lock(mutex);
  std::erase_if(left, [](pid_t one) { return ::waitpid(one, nullptr, WNOHANG) != 0; });
  left.push_back(pid);
}

}  // namespace

Result<HelperOutput> run_helper(const std::filesystem::path& program,
                                const std::vector<std::string>& arguments,
                                std::chrono::milliseconds deadline) {
  const auto until = Clock::now() + deadline;
  auto out = make_pipe();
  if (!out) return fail(std::move(out).error());
  auto err = make_pipe();
  if (!err) return fail(std::move(err).error());
  std::vector<std::string> words = {program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  // Ctrl-C does not reach the program: the caller may need the answer to finish its work (FinishOnSignal).
  const auto pid =
      spawn(program, words, {.out = out->writer.get(), .err = err->writer.get(), .own_session = true});
  if (!pid) return fail(pid.error());
  out->writer.reset();
  err->writer.reset();

  HelperOutput output;
  const bool in_time = collect(out->reader, err->reader, until, output) && ends(*pid, until);
  // A process that is stuck in the kernel, at a disk that hangs, is left behind.
  if (!in_time) ::kill(*pid, SIGKILL);
  if (in_time || ends(*pid, Clock::now() + kForTheEnd)) {
    output.exit_status = reap(*pid);
  } else {
    collect_later(*pid);
  }
  if (!in_time) {
    return fail(Errc::unreachable,
                fmt::format("{}: no answer in {} ms", program.filename().string(), deadline.count()));
  }
  return output;
}

Result<std::vector<Domain>> running_domains(const VirtHelper& helper, std::chrono::milliseconds deadline) {
  std::vector<std::string> arguments = {"domains", "--host-root", helper.host_root.string()};
  if (!helper.uri.empty()) arguments.insert(arguments.end(), {"--connect", helper.uri});
  auto output = run_helper(helper.program, arguments, deadline);
  if (!output && is_gone(output.error()))
    return fail(Errc::unreachable, std::move(output.error().message),
                "install ferry-virt in the folder of ferry");
  if (!output) return fail(std::move(output).error());
  if (!output->out.empty()) return read_domains_answer(output->out);

  // Without any answer the program was called wrongly or died; its last message is the reason.
  std::string_view said = output->err;
  while (said.ends_with('\n')) said.remove_suffix(1);
  said.remove_prefix(said.find_last_of('\n') + 1);  // npos + 1 is 0: the whole text
  return fail(Errc::unreachable, fmt::format("{} ended without an answer (status {}): {}",
                                             helper.program.filename().string(), output->exit_status, said));
}

}  // namespace ferry::virt
