package conntrack
