// SPDX-License-Identifier: Apache-2.0

// A device plugin in Go that does of what NVIDIA's does (kubevirt-gpu-device-plugin v1.6.0) what the kubelet waits
// for: it reads the host's functions before it serves, and at an Allocate, on a host without /dev/iommu, the IOMMU
// group and the vendor of each device that is asked for, whether there is a /dev/iommu, and what has extended memory.
// When the kubelet's socket is made anew all resources register again, side by side; NVIDIA's do when their own
// sockets are removed, a moment earlier, and dial as gRPC does.
// It has less to do than NVIDIA's: no names, no lists that change, no health. It is built with Debian 12's Go (1.19)
// and gRPC (1.33), which are older than NVIDIA's.
//
// usage: go_plugin DIRECTORY RESOURCES HOST: the accelerators of HOST, dealt out over nvidia.com/GO_0 and on
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"deviceplugin/v1beta1"
)

const vendor = "0x10de"

type host string

func (h host) function(address, name string) string {
	return filepath.Join(string(h), "sys/bus/pci/devices", address, name)
}

func (h host) group(address string) (string, error) {
	target, err := os.Readlink(h.function(address, "iommu_group"))
	return filepath.Base(target), err
}

func (h host) isVendors(address string) bool {
	text, err := os.ReadFile(h.function(address, "vendor"))
	return err == nil && strings.TrimSpace(string(text)) == vendor
}

// groups gives the functions that are the vendor's and vfio-pci's, in order, and the group of each.
func (h host) groups() (addresses []string, groups map[string]string, err error) {
	entries, err := os.ReadDir(filepath.Join(string(h), "sys/bus/pci/devices"))
	if err != nil {
		return nil, nil, err
	}
	groups = map[string]string{}
	for _, entry := range entries {
		address := entry.Name()
		driver, _ := os.Readlink(h.function(address, "driver"))
		if !h.isVendors(address) || filepath.Base(driver) != "vfio-pci" {
			continue
		}
		if groups[address], err = h.group(address); err != nil {
			return nil, nil, err
		}
		addresses = append(addresses, address)
	}
	return addresses, groups, nil
}

type plugin struct {
	host    host
	groups  map[string]string
	ids     []string
	stopped chan struct{}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (p *plugin) GetPreferredAllocation(context.Context, *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	return &v1beta1.PreferredAllocationResponse{}, nil
}

func (p *plugin) PreStartContainer(context.Context, *v1beta1.PreStartContainerRequest) (*v1beta1.PreStartContainerResponse, error) {
	return &v1beta1.PreStartContainerResponse{}, nil
}

func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	list := &v1beta1.ListAndWatchResponse{}
	for _, id := range p.ids {
		list.Devices = append(list.Devices, &v1beta1.Device{ID: id, Health: "Healthy"})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	select {
	case <-p.stopped:
	case <-stream.Context().Done():
	}
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	response := &v1beta1.AllocateResponse{}
	for _, asked := range request.ContainerRequests {
		nodes := []string{"/dev/vfio/vfio"}
		for _, id := range asked.DevicesIds {
			group, err := p.host.group(id)
			if err != nil || group != p.groups[id] || !p.host.isVendors(id) {
				return nil, fmt.Errorf("invalid allocation request: unknown device: %s", id)
			}
			nodes = append(nodes, "/dev/vfio/"+group)
		}
		if _, err := os.Stat(filepath.Join(string(p.host), "dev/iommu")); err == nil {
			return nil, fmt.Errorf("the host has /dev/iommu, of which this plugin knows nothing")
		}
		if memory, _ := os.ReadDir(filepath.Join(string(p.host), "sys/class/egm")); len(memory) > 0 {
			return nil, fmt.Errorf("the host has extended memory, of which this plugin knows nothing")
		}
		container := &v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{"PCI_RESOURCE_NVIDIA_COM_GO": strings.Join(asked.DevicesIds, ",")},
		}
		for _, node := range nodes {
			container.Devices = append(container.Devices,
				&v1beta1.DeviceSpec{ContainerPath: node, HostPath: node, Permissions: "mrw"})
		}
		response.ContainerResponses = append(response.ContainerResponses, container)
	}
	return response, nil
}

const kubeletSocket = "kubelet.sock"

// dial goes on until somebody listens: gRPC itself would wait for a second before it tries again.
func dial(ctx context.Context, path string) (net.Conn, error) {
	for {
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil || ctx.Err() != nil {
			return connection, err
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// serve makes a resource's server and registers it, as NVIDIA's does: one connection to the kubelet for each.
func serve(directory string, number int, of *plugin) (*grpc.Server, error) {
	endpoint := fmt.Sprintf("go-%d.sock", number)
	listener, err := net.Listen("unix", filepath.Join(directory, endpoint))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, of)
	go server.Serve(listener)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	kubelet, err := grpc.DialContext(ctx, filepath.Join(directory, kubeletSocket), grpc.WithInsecure(), grpc.WithBlock(),
		grpc.WithContextDialer(dial))
	if err != nil {
		return nil, err
	}
	defer kubelet.Close()
	_, err = v1beta1.NewRegistrationClient(kubelet).Register(ctx, &v1beta1.RegisterRequest{
		Version: "v1beta1", Endpoint: endpoint, ResourceName: fmt.Sprintf("nvidia.com/GO_%d", number)})
	return server, err
}

// comings tells when a kubelet's socket has been made in the directory since the last time.
func comings(directory string) (<-chan struct{}, error) {
	descriptor, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if _, err := syscall.InotifyAddWatch(descriptor, directory, syscall.IN_CREATE); err != nil {
		return nil, err
	}
	events := make(chan struct{}, 1)
	go func() {
		buffer := make([]byte, 65536)
		for {
			size, err := syscall.Read(descriptor, buffer)
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				log.Fatal(err)
			}
			if !strings.Contains(string(buffer[:size]), kubeletSocket+"\x00") {
				continue
			}
			select {
			case events <- struct{}{}:
			default:
			}
		}
	}()
	return events, nil
}

func serveAgain(directory string, servers []*grpc.Server, plugins []*plugin) {
	var all sync.WaitGroup
	for number := range servers {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			servers[number].Stop()
			server, err := serve(directory, number, plugins[number])
			if err != nil {
				log.Fatal(err)
			}
			servers[number] = server
		}(number)
	}
	all.Wait()
}

func run() error {
	if len(os.Args) != 4 {
		return fmt.Errorf("usage: go_plugin DIRECTORY RESOURCES HOST")
	}
	directory, on := os.Args[1], host(os.Args[3])
	resources, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	kubelets, err := comings(directory)
	if err != nil {
		return err
	}
	addresses, groups, err := on.groups()
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	var plugins []*plugin
	var servers []*grpc.Server
	for number := 0; number < resources; number++ {
		of := &plugin{host: on, groups: groups, stopped: stopped}
		for i := number; i < len(addresses); i += resources {
			of.ids = append(of.ids, addresses[i])
		}
		server, err := serve(directory, number, of)
		if err != nil {
			return err
		}
		plugins = append(plugins, of)
		servers = append(servers, server)
	}
	for {
		select {
		case <-kubelets:
			serveAgain(directory, servers, plugins)
		case <-stop:
			close(stopped)
			for _, server := range servers {
				server.GracefulStop()
			}
			return nil
		}
	}
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
