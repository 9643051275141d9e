// Command bare starts and ends: the floor under every Go tool.
package main

func main() {}
