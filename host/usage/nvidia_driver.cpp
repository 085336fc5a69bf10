// SPDX-License-Identifier: Apache-2.0
#include "host/usage/nvidia_driver.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <rpc/rpc.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/lazy_library.h"
#include "common/unique_fd.h"
#include "hostfs/bounded_caller.h"
#include "hostfs/descriptor_reads.h"

namespace ferry::host {
namespace {

// An unused GPU may have to wake up for the lock, which takes seconds. A GPU that hangs delays the check
// after the fences, and with it the other GPUs, for this long.
constexpr std::chrono::seconds kPatience{30};

std::filesystem::path lock_of(const vfio::PciAddress& device) {
  return std::filesystem::path("proc/driver/nvidia/gpus") / device.text() / "unbindLock";
}

}  // namespace

bool NvidiaUnbindLock::has(const vfio::PciAddress& device) const {
  return host_->exists(lock_of(device));
}

// The write succeeds in any case; the driver's answer is in the value read back.
Result<> NvidiaUnbindLock::take(const vfio::PciAddress& device) {
  const auto path = lock_of(device);
  if (auto written = writer_->write(path, "1", kPatience); !written) return written;
  // The read takes the GPU's lock, which another process may hold and hang with.
  const auto answer = writer_->read(path, kPatience);
  if (!answer) return fail(answer.error());
  if (*answer == "1") return {};
  return fail(
      Errc::refused,
      device.text() + " is in use: its driver refuses the unbind lock, though no device user was found",
      "a console or a kernel client may hold it: see refcnt and holders of /sys/module/nvidia");
}

Result<> NvidiaUnbindLock::release(const vfio::PciAddress& device) {
  return has(device) ? writer_->write(lock_of(device), "0") : Result<>();
}

namespace {

namespace fs = std::filesystem;

constexpr int kInit = 1;
constexpr const char* kDriverRoot = "run/nvidia/driver";
constexpr const char* kSocket = "run/nvidia-persistenced/socket";
constexpr rpcprog_t kProgram = 35006;
constexpr rpcvers_t kVersion = 1;
constexpr rpcproc_t kSetPersistenceMode = 1;

/// The arguments of a call, in the order of the wire.
struct Order {
  std::array<long, 5> words;  ///< domain, bus, slot, function, mode

  static bool_t encode(XDR* stream, Order* order) {
    for (const long& word : order->words)
      if (!XDR_PUTLONG(stream, &word)) return FALSE;
    return TRUE;
  }
};

bool_t decode_status(XDR* stream, std::int32_t* status) {
  long word = 0;
  if (!XDR_GETLONG(stream, &word)) return FALSE;
  *status = static_cast<std::int32_t>(word);
  return TRUE;
}

// A library's function type has no types of arguments.
template <typename T>
xdrproc_t untyped(bool_t (*procedure)(XDR*, T*)) {
  return reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(procedure));
}

struct Answer {
  clnt_stat call = RPC_FAILED;
  std::int32_t status = 0;
};

timeval time_of(std::chrono::milliseconds time) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {.tv_sec = whole.count(), .tv_usec = std::chrono::microseconds(time - whole).count()};
}

Answer call(decltype(&::clnt_vc_create) make_client, int socket, Order order,
            std::chrono::milliseconds patience) {
  // A daemon that ends during the call; the thread ends with this call.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  sockaddr_un unnamed{};
  unnamed.sun_family = AF_UNIX;
  const netbuf address{.maxlen = sizeof(unnamed), .len = sizeof(unnamed), .buf = &unnamed};
  CLIENT* client = make_client(socket, &address, kProgram, kVersion, 0, 0);
  if (client == nullptr) return {};
  Answer answer;
  answer.call =
      clnt_call(client, kSetPersistenceMode, untyped(Order::encode), reinterpret_cast<caddr_t>(&order),
                untyped(decode_status), reinterpret_cast<caddr_t>(&answer.status), time_of(patience));
  clnt_destroy(client);
  return answer;
}

Result<> result_of(const std::optional<Answer>& answer, std::chrono::milliseconds patience) {
  if (!answer || answer->call == RPC_TIMEDOUT)
    return fail(Errc::failed, fmt::format("nvidia-persistenced has not answered in {} ms", patience.count()));
  if (answer->call != RPC_SUCCESS)
    return fail(Errc::failed, fmt::format("nvidia-persistenced ended the call: RPC error {}",
                                          static_cast<int>(answer->call)));
  if (answer->status == 0) return {};
  constexpr std::array<std::string_view, 11> kWords = {"",
                                                       "",
                                                       "no such GPU",
                                                       "its driver failed",
                                                       "no resources",
                                                       "wrong order",
                                                       "I/O error",
                                                       "no permission",
                                                       "RPC error",
                                                       "its user may not",
                                                       "the GPU's memory is in use"};
  const auto at = static_cast<std::size_t>(answer->status);
  return fail(Errc::failed, fmt::format("nvidia-persistenced has answered {} ({})", answer->status,
                                        at < kWords.size() ? kWords.at(at) : "unknown"));
}

bool is_no_listener(const std::error_code& code) {
  return code == std::errc::no_such_file_or_directory || code == std::errc::not_a_directory ||
         code == std::errc::connection_refused;
}

/// Absent: no daemon listens there.
Result<std::optional<UniqueFd>> connect_below(const HostFs& host, const fs::path& root,
                                              std::chrono::milliseconds patience) {
  const auto file = host.open_below_root_of(kInit, root / kSocket, O_PATH);
  if (!file && is_no_listener(file.error().code)) return std::nullopt;
  if (!file) return fail(file.error());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  fmt::format_to_n(address.sun_path, sizeof(address.sun_path) - 1, "/proc/self/fd/{}", file->get());
  const timeval limit = time_of(patience);
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0 &&
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return socket;
  Error error = error_from_errno(errno, "connect to nvidia-persistenced");
  if (is_no_listener(error.code)) return std::nullopt;
  return fail(std::move(error));
}

Result<> ask(UniqueFd connected, const Order& order, std::chrono::milliseconds patience) {
  auto library = LazyLibrary::load("libtirpc.so.3", "install libtirpc3");
  if (!library) return fail(std::move(library).error().during("talk to nvidia-persistenced"));
  decltype(&::clnt_vc_create) make_client = nullptr;
  library->find("clnt_vc_create", make_client);
  if (auto found = library->has_all("libtirpc 1.3 or newer"); !found) return fail(std::move(found).error());

  const auto socket = std::make_shared<UniqueFd>(std::move(connected));
  // A client of the library waits for each byte of an answer anew.
  BoundedCaller caller(patience + std::chrono::seconds(1));
  const auto answer = caller.call<Answer>([=] { return call(make_client, socket->get(), order, patience); });
  if (!answer) ::shutdown(socket->get(), SHUT_RDWR);
  return result_of(answer, patience);
}

}  // namespace

Result<> NvidiaPersistence::set(const vfio::PciAddress& gpu, bool on) {
  constexpr std::chrono::minutes kSilence{1};
  const Order order{.words = {gpu.domain, gpu.bus, gpu.device, gpu.function, on ? 1 : 0}};
  if (std::chrono::steady_clock::now() < silent_until_)
    return fail(Errc::failed, "nvidia-persistenced has not answered a moment ago");
  Result<> done;
  bool asked = on;
  for (const fs::path& root : {fs::path(), fs::path(kDriverRoot)}) {
    auto socket = connect_below(host_, root, patience_);
    if (!socket) return fail(std::move(socket).error());
    if (!*socket) continue;
    asked = true;
    const auto begun = std::chrono::steady_clock::now();
    if (auto answered = ask(std::move(**socket), order, patience_); !answered) done = std::move(answered);
    const auto now = std::chrono::steady_clock::now();
    if (now - begun >= patience_) silent_until_ = now + kSilence;
  }
  if (!asked) return fail(Errc::unreachable, "nvidia-persistenced does not listen");
  return done;
}

bool closes_on_request(const HostFs& host, int pid) {
  constexpr std::string_view kCommand = "nvidia-persiste";  // as far as the kernel keeps it
  const auto command = host.read_attribute(fs::path("proc") / std::to_string(pid) / "comm");
  if (!command || *command != kCommand) return false;
  const auto driver = host.open_below_root_of(kInit, kDriverRoot, O_PATH | O_DIRECTORY);
  const auto own = host.open_below_root_of(pid, ".", O_PATH | O_DIRECTORY);
  return driver && own && is_same_file(driver->get(), own->get()) &&
         host.open_below_root_of(pid, kSocket, O_PATH).has_value();
}

}  // namespace ferry::host
