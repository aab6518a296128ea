// The page of search results: the list at its side works as on the other pages.
import { startSidebar } from "./sidebar.js";

startSidebar();
