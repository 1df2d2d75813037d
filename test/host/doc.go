// Package host runs the load balancer on a machine of its own: a virtual machine with virtio-net
// cards, whose taps lie in namespaces of this machine, the clients behind one and the servers
// behind the other. Bulk transfers of real HTTP and iperf3 go through it in each mode.
package host
