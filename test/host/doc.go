// Package host runs the load balancer on a dedicated virtual machine with two virtio-net cards.
// Their taps are in namespaces of this machine, one with the clients and one with the servers. HTTP
// and iperf3 transfer bulk data in each mode.
package host
