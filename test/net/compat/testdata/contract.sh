#!/bin/sh
# Written for the existing loxilb: a script of one of its users, as it stands.
#   contract.sh setup|show|save|restore|delete DIR
set -eu
dir=$2

setup() {
	loxicmd create ep 31.31.31.1 --name=web1 --probetype=tcp --probeport=5001 --period=1 --retries=2
	loxicmd create endpoint 32.32.32.1 --desc=web2 --probetype=ping --period=60
	loxicmd create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:1,17.17.17.1:1
	loxicmd create lb 20.20.20.2 --tcp=2020:5001 --endpoints=31.31.31.1:40,32.32.32.1:40,17.17.17.1:20 --select=priority --name=prio
	loxicmd create lb 20.20.20.3 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:1 --mode=onearm --inatimeout=30
	loxicmd create lb 20.20.20.4 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:1 --mode=fullnat --select=persist --monitor
	loxicmd create lb 20.20.20.5 --tcp=5001:5001 --endpoints=31.31.31.1:1,32.32.32.1:1 --mode=dsr --select=hash
	loxicmd create lb 20.20.20.6 --udp=2020:5353 --endpoints=31.31.31.1:1,32.32.32.1:1,17.17.17.1:1 --select=lc
	loxicmd create lb 20.20.20.7 --icmp --endpoints=31.31.31.1:1
	loxicmd create lb 20.20.20.8 --tcp=3000-3010:5001 --endpoints=17.17.17.1:1 --sources=100.100.100.0/24
	loxicmd create lb 2001:db8:20::1 --tcp=2020:5001 --endpoints=2001:db8:31::1:1,2001:db8:32::1:1
	loxicmd create firewall --firewallRule="sourceIP:100.100.100.1/32,preference:200" --allow --setmark=10
	loxicmd create lb 20.20.20.9 --tcp=2020:5001 --endpoints=17.17.17.1:1 --mark=10
	loxicmd create firewall --firewallRule="destinationIP:20.20.20.1/32,minDestinationPort:2021,maxDestinationPort:2029,protocol:6,preference:300" --drop
}

show() {
	loxicmd get lbversion
	loxicmd get lb
	loxicmd get loadbalancer -o wide
	loxicmd get ep
	loxicmd get firewall
	loxicmd get hastate
	loxicmd get port
	loxicmd get ct
}

save() {
	loxicmd save --all -c "$dir/"
}

delete() {
	loxicmd delete firewall --firewallRule="destinationIP:20.20.20.1/32,minDestinationPort:2021,maxDestinationPort:2029,protocol:6,preference:300"
	loxicmd delete firewall --firewallRule="sourceIP:100.100.100.1/32,preference:200"
	loxicmd delete lb 20.20.20.1 --tcp=2020
	loxicmd delete lb --name=prio
	for i in 3 4; do loxicmd delete lb 20.20.20.$i --tcp=2020; done
	loxicmd delete lb 20.20.20.5 --tcp=5001
	loxicmd delete lb 20.20.20.6 --udp=2020
	loxicmd delete lb 20.20.20.7 --icmp
	loxicmd delete lb 20.20.20.8 --tcp=3000-3010
	loxicmd delete lb 20.20.20.9 --tcp=2020 --mark=10
	loxicmd delete lb 2001:db8:20::1 --tcp=2020
	loxicmd delete ep 31.31.31.1 --name=web1 --probetype=tcp --probeport=5001
	loxicmd delete endpoint 32.32.32.1 --name=web2 --probetype=ping
}

restore() {
	loxicmd apply --lb "$dir/lbconfig.txt"
	loxicmd apply --firewall "$dir/FWconfig.txt"
}

"$1"
