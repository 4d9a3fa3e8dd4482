"""Hosts of addresses."""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: `localhost` or a loopback address."""
    from ipaddress import ip_address

    name = host.strip("[]").lower()
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
