"""Text generation behind one interface, whatever the back end."""
