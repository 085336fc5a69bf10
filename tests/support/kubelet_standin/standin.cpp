// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kubelet_standin/standin.h"

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "deviceplugin.grpc.pb.h"
#include "podresources.grpc.pb.h"

namespace standin {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr seconds kCallLimit{30};

bool alphanumeric(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

bool dns_subdomain(std::string_view domain) {
  if (domain.empty() || domain.size() > 253) return false;
  for (std::size_t at = 0; at <= domain.size();) {
    const auto end = std::min(domain.find('.', at), domain.size());
    const auto label = domain.substr(at, end - at);
    if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-') return false;
    for (const char c : label)
      if ((!alphanumeric(c) && c != '-') || std::isupper(static_cast<unsigned char>(c)) != 0) return false;
    at = end + 1;
  }
  return true;
}

Answer failure(const grpc::Status& status) {
  Answer answer;
  answer.status = status.error_code();
  answer.error = status.error_message();
  return answer;
}

Answer not_asked(std::string why) {
  Answer answer;
  answer.status = -1;
  answer.error = std::move(why);
  return answer;
}

/// A connection to one plugin and the thread that reads its list.
struct Plugin {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1beta1::DevicePlugin::Stub> stub;
  grpc::ClientContext context;  // of the stream
  std::thread reader;
};

/// A server with one service on `directory`/kubelet.sock; nullptr when it cannot listen.
std::unique_ptr<grpc::Server> serve(grpc::Service& service, const fs::path& directory) {
  std::error_code ignored;
  fs::remove(directory / "kubelet.sock", ignored);
  grpc::ServerBuilder builder;
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.AddListeningPort("unix:" + (directory / "kubelet.sock").string(),
                           grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  return builder.BuildAndStart();
}

std::unique_ptr<grpc::ClientContext> limited() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + kCallLimit);
  return context;
}

}  // namespace

std::size_t Resource::allocatable() const {
  return static_cast<std::size_t>(
      std::count_if(devices.begin(), devices.end(), [](const auto& entry) { return entry.second.healthy; }));
}

std::string resource_name_fault(const std::string& name) {
  const auto slash = name.find('/');
  if (slash == std::string::npos) return "no '/' in it";
  if (name.find("kubernetes.io/") != std::string::npos) return "a native resource";
  if (name.starts_with("requests.")) return "begins with requests.";
  const std::string part = name.substr(slash + 1);
  if (!dns_subdomain("requests." + name.substr(0, slash))) return "its prefix is no DNS subdomain";
  if (part.empty() || part.size() > 63) return "its name is empty or longer than 63 characters";
  if (!alphanumeric(part.front()) || !alphanumeric(part.back()))
    return "its name does not begin and end alphanumeric";
  for (const char c : part)
    if (!alphanumeric(c) && c != '-' && c != '_' && c != '.') return "its name has an illegal character";
  return {};
}

class Kubelet::Impl final : public v1beta1::Registration::Service {
 public:
  Impl(fs::path directory, Options options)
      : directory_(std::move(directory)), options_(std::move(options)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;
  ~Impl() override { stop(); }

  bool start() {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(directory_, ignored)) {
      if (entry.is_socket(ignored)) fs::remove(entry.path(), ignored);
    }
    server_ = serve(*this, directory_);
    if (!options_.pod_resources.empty()) {
      fs::create_directories(options_.pod_resources, ignored);
      pods_server_ = serve(lister_, options_.pod_resources);
      if (!pods_server_) return false;
    }
    return server_ != nullptr;
  }

  void stop() {
    for (auto* const server : {&server_, &pods_server_}) {
      if (!*server) continue;
      (*server)->Shutdown(std::chrono::system_clock::now());
      (*server)->Wait();
      server->reset();
    }
    std::map<std::string, std::shared_ptr<Plugin>> plugins;
    std::vector<std::shared_ptr<Plugin>> dropped;
    {
      const std::scoped_lock lock(mutex_);
      plugins.swap(plugins_);
      dropped.swap(dropped_);
    }
    for (auto& [name, plugin] : plugins) dropped.push_back(std::move(plugin));
    for (auto& plugin : dropped) {
      plugin->context.TryCancel();
      plugin->reader.join();
    }
  }

  bool renew_socket() {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_ = serve(*this, directory_);
    return server_ != nullptr;
  }

  void drop(const std::string& resource) {
    const std::scoped_lock lock(mutex_);
    forget_plugin(resource);
  }

  grpc::Status Register(grpc::ServerContext* /*context*/, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty* /*response*/) override {
    if (options_.on_register) options_.on_register();
    const auto status = take(*request);
    const std::scoped_lock lock(mutex_);
    registrations_.push_back({.version = request->version(),
                              .endpoint = request->endpoint(),
                              .resource = request->resource_name(),
                              .preferred_in_request = request->options().get_preferred_allocation_available(),
                              .error = status.error_message()});
    changed_.notify_all();
    return status;
  }

  Resources resources() const {
    const std::scoped_lock lock(mutex_);
    return resources_;
  }
  std::vector<Registration> registrations() const {
    const std::scoped_lock lock(mutex_);
    return registrations_;
  }
  bool wait_for(const Condition& condition, std::chrono::milliseconds timeout) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return condition(resources_); });
  }

  Answer allocate(const std::string& resource, int count) {
    std::vector<std::string> free;
    bool prefers = false;
    {
      const std::scoped_lock lock(mutex_);
      const auto known = resources_.find(resource);
      if (known == resources_.end()) return not_asked("unregistered resource " + resource);
      prefers = known->second.preferred_allocation;
      for (const auto& [id, device] : known->second.devices)
        if (device.healthy && !known->second.allocated.contains(id)) free.push_back(id);
    }
    const auto desired = static_cast<std::size_t>(std::max(count, 0));
    if (free.size() < desired) {
      return not_asked("requested number of devices unavailable for " + resource + ": requested " +
                       std::to_string(desired) + ", available " + std::to_string(free.size()));
    }
    std::vector<std::string> chosen;
    if (prefers) {
      const auto preferred = prefer(resource, free, {}, count);
      if (!preferred.ok()) return preferred;
      for (const auto& id : preferred.ids)  // a desired state: what is not free is passed over
        if (chosen.size() < desired && std::find(free.begin(), free.end(), id) != free.end())
          chosen.push_back(id);
    }
    for (const auto& id : free)
      if (chosen.size() < desired && std::find(chosen.begin(), chosen.end(), id) == chosen.end())
        chosen.push_back(id);
    return allocate(resource, chosen, false);
  }

  Answer allocate(const std::string& resource, const std::vector<std::string>& ids, bool force) {
    const auto plugin = plugin_of(resource);
    if (!plugin) return not_asked("no connection to a plugin for " + resource);
    bool pre_start = false;
    {
      const std::scoped_lock lock(mutex_);
      auto& known = resources_[resource];
      pre_start = known.pre_start_required;
      for (const auto& id : ids) {
        const auto device = known.devices.find(id);
        if (force) continue;
        if (device == known.devices.end()) return not_asked("no such device: " + id);
        if (!device->second.healthy) return not_asked("device is not healthy: " + id);
        if (known.allocated.contains(id)) return not_asked("device is allocated already: " + id);
      }
    }
    v1beta1::AllocateRequest request;
    auto& container = *request.add_container_requests();
    for (const auto& id : ids) container.add_devices_ids(id);
    v1beta1::AllocateResponse response;
    if (const auto status = plugin->stub->Allocate(limited().get(), request, &response); !status.ok())
      return failure(status);
    if (response.container_responses_size() == 0)
      return not_asked("no containers return in allocation response");
    if (pre_start) {
      v1beta1::PreStartContainerRequest start;
      for (const auto& id : ids) start.add_devices_ids(id);
      v1beta1::PreStartContainerResponse started;
      if (const auto status = plugin->stub->PreStartContainer(limited().get(), start, &started); !status.ok())
        return failure(status);
    }
    {
      const std::scoped_lock lock(mutex_);
      resources_[resource].allocated.insert(ids.begin(), ids.end());
      pods_.push_back({.name = "pod-" + std::to_string(++last_pod_), .resource = resource, .ids = ids});
      changed_.notify_all();
    }
    return read(response.container_responses(0), ids);
  }

  Answer prefer(const std::string& resource, const std::vector<std::string>& available,
                const std::vector<std::string>& must_include, int size) {
    const auto plugin = plugin_of(resource);
    if (!plugin) return not_asked("no connection to a plugin for " + resource);
    v1beta1::PreferredAllocationRequest request;
    auto& container = *request.add_container_requests();
    for (const auto& id : available) container.add_available_deviceids(id);
    for (const auto& id : must_include) container.add_must_include_deviceids(id);
    container.set_allocation_size(size);
    v1beta1::PreferredAllocationResponse response;
    if (const auto status = plugin->stub->GetPreferredAllocation(limited().get(), request, &response);
        !status.ok())
      return failure(status);
    Answer answer;
    if (response.container_responses_size() > 0) {
      const auto& ids = response.container_responses(0).deviceids();
      answer.ids.assign(ids.begin(), ids.end());
    }
    return answer;
  }

  void release(const std::vector<std::string>& ids) {
    const std::scoped_lock lock(mutex_);
    for (auto& [name, resource] : resources_)
      for (const auto& id : ids) resource.allocated.erase(id);
    std::erase_if(pods_, [&](const Pod& pod) {
      return std::find_first_of(pod.ids.begin(), pod.ids.end(), ids.begin(), ids.end()) != pod.ids.end();
    });
    changed_.notify_all();
  }

  void remember(Pod pod) {
    const std::scoped_lock lock(mutex_);
    if (!pod.resource.empty()) resources_[pod.resource].allocated.insert(pod.ids.begin(), pod.ids.end());
    pods_.push_back(std::move(pod));
    changed_.notify_all();
  }

 private:
  /// The same books, by pod.
  class Lister final : public v1::PodResourcesLister::Service {
   public:
    explicit Lister(const Impl& kubelet) : kubelet_(kubelet) {}
    grpc::Status List(grpc::ServerContext* /*context*/, const v1::ListPodResourcesRequest* /*request*/,
                      v1::ListPodResourcesResponse* response) override {
      if (kubelet_.options_.on_list) kubelet_.options_.on_list();
      const std::scoped_lock lock(kubelet_.mutex_);
      for (const auto& pod : kubelet_.pods_) {
        auto& listed = *response->add_pod_resources();
        listed.set_name(pod.name);
        listed.set_namespace_("default");
        auto& container = *listed.add_containers();
        container.set_name("compute");
        // As kubelets may: an entry for each device.
        for (const auto& id : pod.ids) {
          auto& devices = *container.add_devices();
          devices.set_resource_name(pod.resource);
          devices.add_device_ids(id);
        }
      }
      return grpc::Status::OK;
    }

   private:
    const Impl& kubelet_;
  };

  static Answer read(const v1beta1::ContainerAllocateResponse& container,
                     const std::vector<std::string>& ids) {
    Answer answer;
    answer.ids = ids;
    answer.envs.insert(container.envs().begin(), container.envs().end());
    answer.annotations.insert(container.annotations().begin(), container.annotations().end());
    for (const auto& device : container.devices())
      answer.devices.push_back({device.host_path(), device.container_path(), device.permissions(), false});
    for (const auto& mount : container.mounts())
      answer.mounts.push_back({mount.host_path(), mount.container_path(), {}, mount.read_only()});
    for (const auto& device : container.cdi_devices()) answer.cdi_devices.push_back(device.name());
    return answer;
  }

  std::shared_ptr<Plugin> plugin_of(const std::string& resource) const {
    const std::scoped_lock lock(mutex_);
    const auto plugin = plugins_.find(resource);
    return plugin == plugins_.end() ? nullptr : plugin->second;
  }

  // With mutex_ held.
  void forget_plugin(const std::string& resource) {
    const auto plugin = plugins_.find(resource);
    if (plugin == plugins_.end()) return;
    plugin->second->context.TryCancel();
    dropped_.push_back(std::move(plugin->second));  // its thread is joined at the end
    plugins_.erase(plugin);
  }

  grpc::Status take(const v1beta1::RegisterRequest& request) {
    const std::string& name = request.resource_name();
    if (request.version() != options_.version)
      return {grpc::StatusCode::UNKNOWN,
              "requested API version \"" + request.version() + "\" is not supported"};
    if (const auto fault = resource_name_fault(name); !fault.empty())
      return {grpc::StatusCode::UNKNOWN, "the ResourceName \"" + name + "\" is invalid: " + fault};
    if (request.endpoint().empty() || request.endpoint().find('/') != std::string::npos)
      return {grpc::StatusCode::UNKNOWN, "endpoint \"" + request.endpoint() + "\" is no file name"};
    if (options_.refuse_second_registration) {
      const std::scoped_lock lock(mutex_);
      const auto known = resources_.find(name);
      if (known != resources_.end() && known->second.connected &&
          known->second.endpoint == request.endpoint())
        return {grpc::StatusCode::UNKNOWN, "a client for " + name + " is connected already"};
    }

    auto plugin = std::make_shared<Plugin>();
    grpc::ChannelArguments arguments;
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no connection is used again
    plugin->channel = grpc::CreateCustomChannel("unix:" + (directory_ / request.endpoint()).string(),
                                                grpc::InsecureChannelCredentials(), arguments);
    plugin->stub = v1beta1::DevicePlugin::NewStub(plugin->channel);
    if (!plugin->channel->WaitForConnected(std::chrono::system_clock::now() + options_.dial_limit))
      return {grpc::StatusCode::UNKNOWN,
              "failed to dial device plugin with socketPath " + request.endpoint()};
    v1beta1::DevicePluginOptions options;
    if (const auto status = plugin->stub->GetDevicePluginOptions(limited().get(), {}, &options); !status.ok())
      return {grpc::StatusCode::UNKNOWN, "failed to get device plugin options: " + status.error_message()};

    if (!options_.reads_lists) return grpc::Status::OK;

    const std::scoped_lock lock(mutex_);
    forget_plugin(name);
    auto& resource = resources_[name];
    resource.endpoint = request.endpoint();
    resource.preferred_allocation = options.get_preferred_allocation_available();
    resource.pre_start_required = options.pre_start_required();
    resource.lists = 0;
    plugins_[name] = plugin;
    plugin->reader = std::thread([this, name, plugin = plugin.get()] { read_lists(name, *plugin); });
    return grpc::Status::OK;
  }

  void read_lists(const std::string& name, Plugin& plugin) {
    const auto stream = plugin.stub->ListAndWatch(&plugin.context, v1beta1::Empty());
    v1beta1::ListAndWatchResponse list;
    const auto current = [&] {
      const auto known = plugins_.find(name);
      return known != plugins_.end() && known->second.get() == &plugin;
    };
    while (stream->Read(&list)) {
      const std::scoped_lock lock(mutex_);
      if (!current()) continue;
      auto& resource = resources_[name];
      resource.connected = true;
      ++resource.lists;
      resource.devices.clear();
      for (const auto& sent : list.devices()) {
        Device device{.id = sent.id(),
                      .healthy = sent.health() == "Healthy",
                      .has_topology = sent.has_topology(),
                      .numa_nodes = {}};
        for (const auto& node : sent.topology().nodes()) device.numa_nodes.push_back(node.id());
        if (!resource.devices.insert_or_assign(sent.id(), std::move(device)).second)
          complain(name + " lists " + sent.id() + " twice");
        resource.ever_listed.insert(sent.id());
      }
      changed_.notify_all();
    }
    const auto end = stream->Finish();
    const std::scoped_lock lock(mutex_);
    const auto known = plugins_.find(name);
    if (known != plugins_.end() && known->second.get() != &plugin) return;  // another has taken over
    auto& resource = resources_[name];
    resource.connected = false;
    resource.ended_in_order = end.ok();
    for (auto& [id, device] : resource.devices) device.healthy = false;
    if (known != plugins_.end()) {
      dropped_.push_back(std::move(known->second));
      plugins_.erase(known);
    }
    changed_.notify_all();
  }

  void complain(const std::string& fault) const {
    if (options_.on_fault) return options_.on_fault(fault);
    std::cerr << "kubelet-standin: " << fault << std::endl;
    std::abort();
  }

  const fs::path directory_;
  const Options options_;
  Lister lister_{*this};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::Server> pods_server_;

  mutable std::recursive_mutex mutex_;  // conditions look at more than they are given
  mutable std::condition_variable_any changed_;
  Resources resources_;
  std::vector<Pod> pods_;
  int last_pod_ = 0;
  std::vector<Registration> registrations_;
  std::map<std::string, std::shared_ptr<Plugin>> plugins_;
  std::vector<std::shared_ptr<Plugin>> dropped_;
};

Kubelet::Kubelet(fs::path directory, Options options)
    : impl_(std::make_unique<Impl>(std::move(directory), std::move(options))) {}
Kubelet::~Kubelet() = default;

bool Kubelet::start() {
  return impl_->start();
}
void Kubelet::stop() {
  impl_->stop();
}
bool Kubelet::renew_socket() {
  return impl_->renew_socket();
}
void Kubelet::drop(const std::string& resource) {
  impl_->drop(resource);
}
Resources Kubelet::resources() const {
  return impl_->resources();
}
std::vector<Registration> Kubelet::registrations() const {
  return impl_->registrations();
}
bool Kubelet::wait_for(const Condition& condition, std::chrono::milliseconds timeout) const {
  return impl_->wait_for(condition, timeout);
}
Answer Kubelet::allocate(const std::string& resource, int count) {
  return impl_->allocate(resource, count);
}
Answer Kubelet::allocate(const std::string& resource, const std::vector<std::string>& ids, bool force) {
  return impl_->allocate(resource, ids, force);
}
Answer Kubelet::prefer(const std::string& resource, const std::vector<std::string>& available,
                       const std::vector<std::string>& must_include, int size) {
  return impl_->prefer(resource, available, must_include, size);
}
void Kubelet::remember(Pod pod) {
  impl_->remember(std::move(pod));
}
void Kubelet::release(const std::vector<std::string>& ids) {
  impl_->release(ids);
}

}  // namespace standin
